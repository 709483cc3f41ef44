//! A fit with two coefficients.

/// The p and q for which p·a + q·b is closest to y over all rows `[a, b, y]`, by the normal equations.
pub fn least_squares(rows: &[[f64; 3]]) -> [f64; 2] {
    let [aa, ab, bb] = [(0, 0), (0, 1), (1, 1)].map(|(i, j)| products(rows, i, j));
    let [ay, by] = [0, 1].map(|column| products(rows, column, 2));
    let determinant = aa * bb - ab * ab;
    [(ay * bb - by * ab) / determinant, (by * aa - ay * ab) / determinant]
}

/// The same for a single column: the p for which p times it is closest to y.
pub fn least_squares_of(column: usize, rows: &[[f64; 3]]) -> f64 {
    products(rows, column, 2) / products(rows, column, column)
}

/// The sum of the products of two columns.
fn products(rows: &[[f64; 3]], i: usize, j: usize) -> f64 {
    rows.iter().map(|row| row[i] * row[j]).sum()
}
