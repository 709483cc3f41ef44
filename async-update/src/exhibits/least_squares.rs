//! A fit with two coefficients.

/// The p and q for which p·a + q·b is closest to y over all rows `[a, b, y]`, by the normal equations.
pub fn least_squares(rows: impl IntoIterator<Item = [f64; 3]>) -> [f64; 2] {
    let (mut aa, mut ab, mut bb, mut ay, mut by) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for [a, b, y] in rows {
        aa += a * a;
        ab += a * b;
        bb += b * b;
        ay += a * y;
        by += b * y;
    }
    let determinant = aa * bb - ab * ab;
    [(ay * bb - by * ab) / determinant, (by * aa - ay * ab) / determinant]
}
