-- Malignant tumours whose nuclei are smaller than those of the average benign tumour.
SELECT radius_mean, area_mean, concavity_mean
FROM breast_cancer
WHERE diagnosis = 'malignant'
  AND area_mean < (SELECT avg(area_mean) FROM breast_cancer WHERE diagnosis = 'benign')
ORDER BY area_mean
LIMIT $count
