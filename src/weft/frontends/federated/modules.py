"""The modules of FATE 1.x: the roles that run them, and the names of their parameters.

The names are the union of FATE 1.5.0, 1.6.0, 1.8.0 and 1.11.4, since files of all of them run. Source: the classes in
`federatedml/param` and `fate_flow/components/param`, and the roles in `federatedml/conf/setting_conf` and
`federatedml/components`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from msgspec import Struct

GUEST: Final = "guest"
HOST: Final = "host"
ARBITER: Final = "arbiter"
LOCAL: Final = "local"
ROLES: Final = (GUEST, HOST, ARBITER, LOCAL)
_GUEST_HOST: Final = (GUEST, HOST)
_ALL: Final = (GUEST, HOST, ARBITER)
_GROUP: Final = "*"
_GROUPS: Final[Mapping[str, str]] = {
    "callback_param": "callbacks early_stopping_rounds metrics save_freq use_first_metric_only validation_freqs",
    "coae_param": "enable epoch lambda1 lambda2 lr verbose",
    "correlation_param": "select_federated sort_metric threshold",
    "cv_param": "history_value_type mode n_splits need_cv output_fold_history random_seed role shuffle",
    "dataset": "dataset_name param",
    "dh_params": "hash_method key_length salt",
    "ecdh_params": "curve hash_method salt",
    "encode_params": "base64 encode_method salt",
    "encrypt_param": "key_length method",
    "encrypted_mode_calculator_param": "mode re_encrypted_rate",
    "encrypted_model_calculator_param": "mode re_encrypted_rate",
    "init_param": "fit_intercept init_const init_method random_seed",
    "intersect_cache_param": "encrypt_type id_type use_cache",
    "intersect_param": (
        "allow_info_share cardinality_method cardinality_only dh_params* ecdh_params* encode_params* "
        "info_owner intersect_cache_param* intersect_method intersect_preprocess_params* join_method "
        "join_role new_sample_id only_output_key random_bit raw_params* repeated_id_owner "
        "repeated_id_process rsa_params* run_cache run_preprocess sample_id_generator sync_cardinality "
        "sync_intersect_ids with_encode with_sample_id"
    ),
    "intersect_preprocess_params": (
        "encrypt_method false_positive_rate filter_owner hash_method preprocess_method preprocess_salt random_state"
    ),
    "iv_param": "filter_type host_thresholds metrics mul_class_merge_type select_federated take_high threshold",
    "iv_percentile_param": "local_only percentile_threshold",
    "iv_top_k_param": "k local_only",
    "iv_value_param": "host_thresholds local_only value_threshold",
    "manually_param": "filter_out_indexes filter_out_names left_col_indexes left_col_names",
    "objective_param": "objective params",
    "optimal_binning_param": (
        "adjustment_factor init_bin_nums init_bucket_method max_bin max_bin_pct metric_method min_bin_pct mixture"
    ),
    "outlier_param": "percentile upper_threshold",
    "percentage_value_param": "upper_pct",
    "predict_param": "threshold",
    "psi_param": "filter_type host_thresholds metrics select_federated take_high threshold",
    "raw_params": "base64 hash_method join_role salt use_hash",
    "rsa_params": "final_hash_method hash_method key_length random_base_fraction random_bit salt split_calculation",
    "sbt_param": "filter_type host_thresholds metrics select_federated take_high threshold",
    "sqn_param": "memory_M random_seed sample_size update_interval_L",
    "statistic_param": "filter_type host_thresholds metrics select_federated take_high threshold",
    "stepwise_param": "direction max_step mode need_stepwise nvmax nvmin role score_name",
    "trainer": "param trainer_name",
    "transform_param": "transform_cols transform_names transform_type",
    "tree_param": (
        "criterion_method criterion_params deterministic feature_importance_type max_depth "
        "max_split_nodes min_child_weight min_impurity_split min_leaf_node min_sample_split "
        "n_iter_no_change tol use_missing zero_as_missing"
    ),
    "unique_param": "eps",
    "variance_coe_param": "value_threshold",
    "vif_param": "filter_type host_thresholds metrics select_federated take_high threshold",
}
"""The parameters of groups by the name of the group; a star marks a group."""
_MODULES: Final[Mapping[str, tuple[Sequence[str], str]]] = {
    "ColumnExpand": (_GUEST_HOST, "append_header fill_value method need_run"),
    "DataIO": (
        _GUEST_HOST,
        (
            "data_type default_value delimitor exclusive_data_type input_format label_name label_type "
            "missing_fill missing_fill_method missing_impute need_run outlier_impute outlier_replace "
            "outlier_replace_method outlier_replace_value output_format tag_value_delimitor tag_with_value "
            "with_label"
        ),
    ),
    "DataStatistics": (
        _GUEST_HOST,
        "abnormal_list bias column_indexes column_names need_run quantile_error statistics",
    ),
    "DataTransform": (
        _GUEST_HOST,
        (
            "data_type default_value delimitor exclusive_data_type input_format label_name label_type "
            "match_id_index match_id_name missing_fill missing_fill_method missing_impute need_run "
            "outlier_impute outlier_replace outlier_replace_method outlier_replace_value output_format "
            "tag_value_delimitor tag_with_value with_label with_match_id"
        ),
    ),
    "Evaluation": (
        _ALL,
        (
            "allowed_metrics default_metrics eval_type metrics need_run pos_label "
            "run_clustering_arbiter_metric unfold_multi_result"
        ),
    ),
    "FTL": (
        _GUEST_HOST,
        (
            "alpha batch_size callback_param* communication_efficient config_type encrypt_param* "
            "encrypted_mode_calculator_param* epochs intersect_param* local_round mode n_iter_no_change "
            "nn_define optimizer predict_param* tol validation_freqs"
        ),
    ),
    "FeatureImputation": (
        _GUEST_HOST,
        "col_missing_fill_method default_value missing_fill_method missing_impute need_run",
    ),
    "FeatureScale": (
        _GUEST_HOST,
        "feat_lower feat_upper method mode need_run scale_col_indexes scale_names with_mean with_std",
    ),
    "FederatedSample": (_GUEST_HOST, "fractions method mode need_run random_state task_type"),
    "FeldmanVerifiableSum": (_GUEST_HOST, "q_n sum_cols"),
    "HeteroDataSplit": (
        _GUEST_HOST,
        "need_run random_state shuffle split_points stratified test_size train_size validate_size",
    ),
    "HeteroFastSecureBoost": (
        _GUEST_HOST,
        (
            "EINI_complexity_check EINI_inference EINI_random_mask bin_num binning_error boosting_strategy "
            "callback_param* cipher_compress cipher_compress_error complete_secure cv_param* "
            "early_stopping_rounds encrypt_param* encrypted_mode_calculator_param* guest_depth host_depth "
            "learning_rate metrics multi_mode n_iter_no_change new_ver num_trees objective_param* other_rate "
            "predict_param* random_seed run_goss sparse_optimization subsample_feature_rate task_type tol "
            "top_rate tree_num_per_party tree_param* use_first_metric_only use_missing validation_freqs "
            "work_mode zero_as_missing"
        ),
    ),
    "HeteroFeatureBinning": (
        _GUEST_HOST,
        (
            "adjustment_factor bin_indexes bin_names bin_num category_indexes category_names compress_thres "
            "encrypt_param* error head_size local_only method need_run optimal_binning_param* skip_static "
            "split_points_by_col_name split_points_by_index transform_param*"
        ),
    ),
    "HeteroFeatureSelection": (
        _GUEST_HOST,
        (
            "correlation_param* filter_methods iv_param* iv_percentile_param* iv_top_k_param* iv_value_param* "
            "manually_param* need_run outlier_param* percentage_value_param* psi_param* sbt_param* "
            "select_col_indexes select_names statistic_param* unique_param* use_anonymous variance_coe_param* "
            "vif_param*"
        ),
    ),
    "HeteroKmeans": (_ALL, "k max_iter random_stat tol"),
    "HeteroLR": (
        _ALL,
        (
            "alpha batch_size batch_strategy callback_param* cv_param* decay decay_sqrt early_stop "
            "early_stopping_rounds encrypt_param* encrypted_mode_calculator_param* floating_point_precision "
            "init_param* learning_rate masked_rate max_iter metrics multi_class optimizer penalty "
            "predict_param* shuffle sqn_param* stepwise_param* tol use_first_metric_only validation_freqs"
        ),
    ),
    "HeteroLinR": (
        _ALL,
        (
            "alpha batch_size callback_param* cv_param* decay decay_sqrt early_stop early_stopping_rounds "
            "encrypt_param* encrypted_mode_calculator_param* floating_point_precision init_param* "
            "learning_rate max_iter metrics optimizer penalty predict_param* sqn_param* stepwise_param* tol "
            "use_first_metric_only validation_freqs"
        ),
    ),
    "HeteroNN": (
        _GUEST_HOST,
        (
            "batch_size bottom_nn_define callback_param* coae_param* config_type cv_param* dataset* "
            "drop_out_keep_rate early_stop early_stopping_rounds encrypt_param* "
            "encrypted_model_calculator_param* epochs floating_point_precision interactive_layer_define "
            "interactive_layer_lr loss metrics optimizer predict_param* seed selector_param task_type tol "
            "top_nn_define use_first_metric_only validation_freqs"
        ),
    ),
    "HeteroPearson": (
        _GUEST_HOST,
        ("calc_local_vif column_indexes column_names cross_parties fixpoint_bit_length need_run use_mix_rand"),
    ),
    "HeteroPoisson": (
        _ALL,
        (
            "alpha batch_size callback_param* cv_param* decay decay_sqrt early_stop early_stopping_rounds "
            "encrypt_param* encrypted_mode_calculator_param* exposure_colname floating_point_precision "
            "init_param* learning_rate max_iter metrics optimizer penalty predict_param* stepwise_param* tol "
            "use_first_metric_only validation_freqs"
        ),
    ),
    "HeteroSSHELR": (
        _GUEST_HOST,
        (
            "alpha batch_size batch_strategy callback_param* cv_param* decay decay_sqrt early_stop "
            "early_stopping_rounds encrypt_param* encrypted_mode_calculator_param* floating_point_precision "
            "init_param* learning_rate masked_rate max_iter metrics multi_class optimizer penalty "
            "predict_param* reveal_every_iter reveal_strategy shuffle stepwise_param* tol "
            "use_first_metric_only use_mix_rand validation_freqs"
        ),
    ),
    "HeteroSSHELinR": (
        _GUEST_HOST,
        (
            "alpha batch_size callback_param* cv_param* decay decay_sqrt early_stop early_stopping_rounds "
            "encrypt_param* encrypted_mode_calculator_param* floating_point_precision init_param* "
            "learning_rate max_iter metrics optimizer penalty reveal_every_iter reveal_strategy "
            "stepwise_param* tol use_first_metric_only use_mix_rand validation_freqs"
        ),
    ),
    "HeteroSecureBoost": (
        _GUEST_HOST,
        (
            "EINI_complexity_check EINI_inference EINI_random_mask bin_num binning_error boosting_strategy "
            "callback_param* cipher_compress cipher_compress_error complete_secure cv_param* "
            "early_stopping_rounds encrypt_param* encrypted_mode_calculator_param* guest_depth host_depth "
            "learning_rate metrics multi_mode n_iter_no_change new_ver num_trees objective_param* other_rate "
            "predict_param* random_seed run_goss sparse_optimization subsample_feature_rate "
            "subsample_random_seed task_type tol top_rate tree_num_per_party tree_param* "
            "use_first_metric_only use_missing validation_freqs work_mode zero_as_missing"
        ),
    ),
    "HomoDataSplit": (
        _GUEST_HOST,
        "need_run random_state shuffle split_points stratified test_size train_size validate_size",
    ),
    "HomoFeatureBinning": (
        _ALL,
        (
            "adjustment_factor bin_indexes bin_names bin_num category_indexes category_names compress_thres "
            "error head_size local_only max_iter method need_run sample_bins skip_static transform_param*"
        ),
    ),
    "HomoLR": (
        _ALL,
        (
            "aggregate_iters alpha batch_size batch_strategy callback_param* cv_param* decay decay_sqrt "
            "early_stop early_stopping_rounds encrypt_param* floating_point_precision init_param* "
            "learning_rate masked_rate max_iter metrics mu multi_class optimizer penalty predict_param* "
            "re_encrypt_batches shuffle stepwise_param* tol use_first_metric_only use_proximal "
            "validation_freqs"
        ),
    ),
    "HomoNN": (
        _ALL,
        (
            "aggregate_every_n_epoch api_version batch_size callback_param* config_type cv_param* dataset* "
            "ds_config early_stop encode_label loss max_iter metrics nn_define optimizer predict_param* "
            "secure_aggregate server_init torch_seed trainer*"
        ),
    ),
    "HomoNNExperiment": (
        (HOST, ARBITER),
        (
            "aggregate_every_n_epoch api_version batch_size config_type cv_param* early_stop encode_label "
            "loss max_iter metrics nn_define optimizer predict_param* secure_aggregate"
        ),
    ),
    "HomoOneHotEncoder": (_ALL, "need_alignment need_run transform_col_indexes transform_col_names"),
    "HomoSecureBoost": (
        _ALL,
        (
            "backend bin_num binning_error callback_param* cv_param* learning_rate metrics multi_mode "
            "n_iter_no_change num_trees objective_param* predict_param* random_seed subsample_feature_rate "
            "task_type tol tree_param* use_missing validation_freqs zero_as_missing"
        ),
    ),
    "HomoSecureboost": (
        _ALL,
        (
            "backend bin_num binning_error callback_param* cv_param* learning_rate metrics multi_mode "
            "n_iter_no_change num_trees objective_param* predict_param* random_seed subsample_feature_rate "
            "subsample_random_seed task_type tol tree_param* use_missing validation_freqs zero_as_missing"
        ),
    ),
    "Intersection": (
        _GUEST_HOST,
        (
            "allow_info_share cardinality_method cardinality_only dh_params* ecdh_params* encode_params* "
            "info_owner intersect_cache_param* intersect_method intersect_preprocess_params* join_method "
            "join_role new_sample_id only_output_key random_bit raw_params* repeated_id_owner "
            "repeated_id_process rsa_params* run_cache run_preprocess sample_id_generator sync_cardinality "
            "sync_intersect_ids with_encode with_sample_id"
        ),
    ),
    "LabelTransform": (_GUEST_HOST, "label_encoder label_list need_run"),
    "LocalBaseline": (_GUEST_HOST, "model_name model_opts need_run predict_param*"),
    "OneHotEncoder": (_GUEST_HOST, "need_run transform_col_indexes transform_col_names"),
    "PSI": (_GUEST_HOST, "binning_error dense_missing_val max_bin_num need_run"),
    "PositiveUnlabeled": (_GUEST_HOST, "strategy threshold"),
    "Rsa": (_GUEST_HOST, "rsa_key_d rsa_key_e rsa_key_n save_out_table_name save_out_table_namespace"),
    "SBTFeatureTransformer": (_GUEST_HOST, "dense_format"),
    "SampleWeight": (_GUEST_HOST, "class_weight need_run normalize sample_weight_name"),
    "Scorecard": (_GUEST_HOST, "factor factor_base lower_limit_value method need_run offset upper_limit_ratio"),
    "SecureAddExample": (_GUEST_HOST, "data_num partition seed"),
    "SecureInformationRetrieval": (
        _GUEST_HOST,
        (
            "commutative_encryption dh_params* key_size non_committing_encryption oblivious_transfer_protocol "
            "raw_retrieval security_level target_cols"
        ),
    ),
    "Union": (_GUEST_HOST, "allow_missing keep_duplicate need_run"),
    "ApiReader": (
        _GUEST_HOST,
        "file_format head headers id_delimiter namespace output_format parameters server_name table url",
    ),
    "CacheLoader": (_GUEST_HOST, "cache_key component_name job_id need_run"),
    "Download": ((LOCAL,), "delimitor name namespace output_path"),
    "ModelLoader": (_ALL, "component_name model_alias model_id model_version step_index step_name"),
    "ModelRestore": ((LOCAL,), "force_update model_id model_version store_address"),
    "ModelStore": ((LOCAL,), "force_update model_id model_version store_address"),
    "Reader": (
        _GUEST_HOST,
        "name namespace need_run output_format partition storage_address storage_engine table token",
    ),
    "Upload": (
        (LOCAL,),
        (
            "auto_increasing_sid block_size cluster destroy drop extend_sid file head id_delimiter meta name "
            "namespace partition partitions storage_address storage_engine table table_name with_meta"
        ),
    ),
}
"""The roles and the parameters of each module."""


_KEYED: Final = ("HeteroLR", "HeteroLinR", "HeteroPoisson")
"""The modules whose arbiter has the key that all others encrypt with."""
_HORIZONTAL: Final = ("HomoFeatureBinning", "HomoLR", "HomoNN", "HomoSecureBoost", "HomoSecureboost")
_NEEDS: Final[Mapping[str, Sequence[str]]] = {
    **dict.fromkeys((*_KEYED, *_HORIZONTAL, "HeteroKmeans"), _ALL),
    **dict.fromkeys(
        (
            *("FTL", "FeldmanVerifiableSum", "HeteroFastSecureBoost", "HeteroNN", "HeteroSSHELR", "HeteroSSHELinR"),
            *("HeteroSecureBoost", "Intersection", "SecureInformationRetrieval"),
        ),
        _GUEST_HOST,
    ),
}
"""The roles without which a module cannot be trained."""
_DATA_OUTPUTS: Final[Mapping[str, int]] = {"HeteroDataSplit": 3, "HomoDataSplit": 3}


class Module(Struct, frozen=True):
    """A module: the roles that run it, and its parameters; one that is a group has its own.

    It cannot be trained in a job without the roles in `needs`, and has `data_outputs` data outputs. `keyed` is whether
    its arbiter has the key that all others encrypt with.
    """

    name: str
    roles: Sequence[str]
    parameters: Mapping[str, Parameters | None]
    needs: Sequence[str] = ()
    data_outputs: int = 1
    keyed: bool = False


class Parameters(Struct, frozen=True):
    """The parameters of a group."""

    names: Mapping[str, Parameters | None]


@cache
def modules() -> Mapping[str, Module]:
    """Return all modules by name."""
    return {
        name: Module(name, roles, _named(names), _NEEDS.get(name, ()), _DATA_OUTPUTS.get(name, 1), name in _KEYED)
        for name, (roles, names) in _MODULES.items()
    }


def _named(names: str) -> dict[str, Parameters | None]:
    found: dict[str, Parameters | None] = {}
    for name in names.split():
        group = name.removesuffix(_GROUP)
        found[group] = Parameters(_named(_GROUPS[group])) if name != group else None
    return found
