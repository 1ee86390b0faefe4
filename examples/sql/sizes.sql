-- Tumours in four groups of equal number, by the mean area of their nuclei.
SELECT
    quarter,
    min(area_mean) AS from_area,
    max(area_mean) AS to_area,
    count(*) AS tumours,
    count(*) FILTER (diagnosis = 'malignant') AS malignant
FROM (SELECT *, ntile(4) OVER (ORDER BY area_mean) AS quarter FROM breast_cancer)
GROUP BY quarter
ORDER BY quarter
