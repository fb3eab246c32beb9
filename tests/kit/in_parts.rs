//! Work on parts of a tensor.

use candecode::kit::in_parts;
use candle_core::{DType, Device, Result, Tensor, D};

#[test]
fn parts_give_what_the_whole_gives() -> Result<()> {
    for shape in [(1, 300, 64, 4), (2, 37, 1000, 2), (1, 1, 90_000, 1), (3, 5, 2, 2)] {
        let x = Tensor::randn(0f32, 1.0, shape, &Device::Cpu)?;
        let y = Tensor::randn(0f32, 1.0, shape, &Device::Cpu)?;
        let f =
            |[x, y]: [&Tensor; 2]| x.broadcast_div(&x.sqr()?.sum_keepdim(D::Minus1)?)?.exp()? * y;
        let flat = |x: Tensor| x.flatten_all()?.to_vec1::<f32>();
        assert_eq!(flat(in_parts([&x, &y], 1, f)?)?, flat(f([&x, &y])?)?, "{shape:?}");
    }
    Ok(())
}

#[test]
fn an_error_of_a_part_is_the_error() -> Result<()> {
    let x = Tensor::zeros((1, 100, 1000), DType::F32, &Device::Cpu)?;
    let y = Tensor::zeros((1, 100, 10), DType::F32, &Device::Cpu)?;
    assert!(in_parts([&x, &y], 1, |[x, y]| x + y).is_err());
    Ok(())
}
