"""The types of the parameters of modules and of jobs, by name; a name that is not here takes any value.

The types are the union of what FATE 1.5.0, 1.6.0, 1.8.0 and 1.11.4 take, since files of all of them run. Bounds and
words are checked by the components, which know what they support, but for sizes of batches: all parties refuse a wrong
one, and the place in the conf tells more than the first of them. Null stands for the default. Source: the defaults and
the method `check` of the classes in `federatedml/param`, and the example files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final

from weft.documents.problems import show


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return _is_number(value) and value == int(value)


def _has_digits(value: Any) -> bool:
    """Whether a value is a number from 0 on, written as text: files of FATE have some."""
    return isinstance(value, str) and value.isdecimal()


def _is_list_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(fits(one) for one in value)


_FLAG, _NUMBER, _WHOLE, _TEXT = "true or false", "a number", "a whole number", "text"
_LIST, _OBJECT = "a list", "an object"
_NUMBERS, _WHOLES, _TEXTS = "a list of numbers", "a list of whole numbers", "a list of texts"
_DIGITS: Final = "digits"
_COUNT: Final = "a whole number from 0 on"
_POSITIVE: Final = "a whole number from 1 on"
_AMOUNT: Final = "a number from 0 on"
LEAST_BATCH: Final = 10
"""The fewest rows of a batch of a linear model, as in FATE (`consts.MIN_BATCH_SIZE`)."""
_BATCH: Final = f"-1 for all rows, or a whole number from {LEAST_BATCH} on (gradients of fewer rows tell of labels)"
_MOST_PRIORITY: Final = 100
_PRIORITY: Final = f"a whole number from -{_MOST_PRIORITY} to {_MOST_PRIORITY}"
LIMITS: Final = ("auto_retries", "auto_retry_delay", "timeout")
"""The fields of a component in `component_limits`."""
_FITS: Final[Mapping[str, Callable[[Any], bool]]] = {
    _FLAG: lambda value: isinstance(value, bool),
    _NUMBER: _is_number,
    _WHOLE: _is_whole,
    _TEXT: lambda value: isinstance(value, str),
    _DIGITS: lambda value: _has_digits(value),
    _COUNT: lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
    _POSITIVE: lambda value: _is_whole(int(value) if _has_digits(value) else value) and int(value) >= 1,
    _BATCH: lambda value: _is_whole(value) and (value == -1 or value >= LEAST_BATCH),
    _AMOUNT: lambda value: _is_number(value) and value >= 0,
    _PRIORITY: lambda value: isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MOST_PRIORITY,
    _LIST: lambda value: isinstance(value, list),
    _OBJECT: lambda value: isinstance(value, dict),
    _NUMBERS: _is_list_of(_is_number),
    _WHOLES: _is_list_of(_is_whole),
    _TEXTS: _is_list_of(lambda value: isinstance(value, str)),
}
_PARAMETERS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (
        (_FLAG,),
        "EINI_complexity_check EINI_inference EINI_random_mask allow_info_share allow_missing base64 bias "
        "calc_local_vif cardinality_only cipher_compress communication_efficient cross_parties decay_sqrt dense_format "
        "deterministic enable encode_label fit_intercept force_update keep_duplicate local_only missing_fill mixture "
        "n_iter_no_change need_alignment need_cv need_run need_stepwise new_sample_id new_ver normalize "
        "only_output_key outlier_replace output_fold_history raw_retrieval repeated_id_process reveal_every_iter "
        "run_cache run_clustering_arbiter_metric run_goss run_preprocess secure_aggregate select_federated server_init "
        "shuffle skip_static sparse_optimization split_calculation stratified sync_cardinality sync_intersect_ids "
        "tag_with_value unfold_multi_result use_anonymous use_cache use_first_metric_only use_hash use_missing "
        "use_mix_rand use_proximal verbose with_encode with_label with_match_id with_mean with_sample_id with_std "
        "zero_as_missing",
    ),
    (
        (_NUMBER,),
        "adjustment_factor alpha binning_error cipher_compress_error decay drop_out_keep_rate eps error factor "
        "factor_base false_positive_rate init_const interactive_layer_lr lambda1 lambda2 learning_rate "
        "lower_limit_value lr masked_rate max_bin_pct min_bin_pct min_child_weight min_impurity_split mu offset "
        "other_rate percentile percentile_threshold quantile_error random_base_fraction re_encrypted_rate "
        "security_level subsample_feature_rate test_size threshold tol top_rate train_size upper_limit_ratio "
        "upper_pct upper_threshold validate_size value_threshold",
    ),
    (
        (_WHOLE,),
        "aggregate_every_n_epoch aggregate_iters api_version batch_size bin_num compress_thres data_num "
        "early_stopping_rounds epoch epochs fixpoint_bit_length floating_point_precision guest_depth head_size "
        "host_depth init_bin_nums k key_length key_size local_round match_id_index max_bin max_bin_num max_depth "
        "max_iter max_split_nodes max_step memory_M min_leaf_node min_sample_split n_splits num_trees nvmax nvmin q_n "
        "random_bit random_seed random_stat random_state re_encrypt_batches sample_bins sample_size seed "
        "subsample_random_seed torch_seed tree_num_per_party update_interval_L SecureAddExample.partition",
    ),
    (
        (_BATCH,),
        "HeteroLR.batch_size HeteroLinR.batch_size HeteroPoisson.batch_size HeteroSSHELR.batch_size "
        "HeteroSSHELinR.batch_size HomoLR.batch_size",
    ),
    (
        (_TEXT,),
        "batch_strategy boosting_strategy cardinality_method commutative_encryption config_type criterion_method curve "
        "data_type dataset_name delimitor direction encode_method encrypt_method encrypt_type eval_type "
        "exposure_colname feature_importance_type filter_owner final_hash_method hash_method history_value_type "
        "id_type info_owner init_bucket_method init_method input_format intersect_method join_method join_role "
        "label_name label_type match_id_name method metric_method missing_fill_method mode model_name multi_class "
        "multi_mode non_committing_encryption objective oblivious_transfer_protocol optimizer outlier_replace_method "
        "output_format penalty preprocess_method preprocess_salt repeated_id_owner reveal_strategy role salt "
        "sample_id_generator sample_weight_name score_name sort_metric strategy tag_value_delimitor task_type "
        "trainer_name transform_type",
    ),
    (
        (_OBJECT,),
        "col_missing_fill_method exclusive_data_type label_encoder model_opts param split_points_by_col_name "
        "split_points_by_index",
    ),
    ((_LIST,), "abnormal_list criterion_params host_thresholds label_list params split_points sum_cols target_cols"),
    (
        (_TEXTS,),
        "append_header bin_names callbacks category_names column_names filter_methods filter_out_names left_col_names "
        "scale_names select_names transform_col_names transform_names",
    ),
    (
        (_WHOLE, _WHOLES),
        "bin_indexes category_indexes column_indexes filter_out_indexes left_col_indexes scale_col_indexes "
        "select_col_indexes transform_col_indexes transform_cols",
    ),
    ((_FLAG, _WHOLE), "complete_secure"),
    ((_FLAG, _LIST), "take_high"),
    ((_NUMBER, _TEXT, _LIST), "fill_value"),
    ((_NUMBER, _LIST), "feat_lower feat_upper fractions"),
    (
        (_NUMBER, _NUMBERS),
        "iv_param.threshold psi_param.threshold sbt_param.threshold statistic_param.threshold vif_param.threshold",
    ),
    ((_WHOLE, _LIST), "validation_freqs"),
    ((_WHOLE, _TEXT), "save_freq"),
    ((_TEXT, _TEXTS), "default_metrics filter_type metrics mul_class_merge_type statistics"),
    (
        (_TEXT, _OBJECT),
        "class_weight early_stop loss FTL.optimizer HeteroNN.optimizer HomoNN.optimizer HomoNNExperiment.optimizer",
    ),
    ((_OBJECT, _LIST), "table"),
)
"""The types of parameters; a name with a dot is that of a module or a group, and goes over the name alone."""
_JOB_PARAMETERS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    ((_POSITIVE,), "processors_per_node task_cores task_parallelism"),
    ((_COUNT, _DIGITS), "auto_retries"),
    ((_AMOUNT, _DIGITS), "auto_retry_delay fail_after timeout"),
    ((_TEXT,), "run_to"),
    ((_FLAG,), "single_step"),
    ((_PRIORITY,), "priority"),
    ((_TEXT, _TEXTS), "run_after run_only"),
    ((_OBJECT,), "inheritance_info trigger_rules"),
)


def parameter_fault(owner: str, name: str, value: Any, *, is_group: bool = False) -> str:
    """Return why a value cannot be that of a parameter, in words; "" if it can. `owner` is its module or its group."""
    kinds = (_OBJECT,) if is_group else _kinds().get(f"{owner}.{name}") or _kinds().get(name, ())
    return _fault(kinds, value)


def job_parameter_fault(name: str, value: Any) -> str:
    """Return why a value cannot be that of a parameter of jobs, in words; "" if it can."""
    return _fault(_job_kinds().get(name, ()), value)


def limit_fault(value: Any) -> str:
    """Return why a value cannot be a limit of a component, in words; "" if it can."""
    return _fault((_COUNT,), value)


def _fault(kinds: tuple[str, ...], value: Any) -> str:
    if value is None or not kinds or any(_FITS[kind](value) for kind in kinds):
        return ""
    return f"must be {' or '.join(kinds)}, is {_described(value)}"


def _described(value: Any) -> str:
    """Return a description of a value for messages, in the words of the reader of files."""
    if isinstance(value, bool):
        return f"the truth value {str(value).lower()}"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        shown = show(", ".join(one if isinstance(one, str) else repr(one) for one in value))
        return f"the list {shown}" if value else "an empty list"
    return f"the text {show(value)}" if isinstance(value, str) else f"the number {value}"


@cache
def _kinds() -> Mapping[str, tuple[str, ...]]:
    return _by_name(_PARAMETERS)


@cache
def _job_kinds() -> Mapping[str, tuple[str, ...]]:
    return _by_name(_JOB_PARAMETERS)


def _by_name(table: Iterable[tuple[tuple[str, ...], str]]) -> Mapping[str, tuple[str, ...]]:
    return {name: kinds for kinds, names in table for name in names.split()}
