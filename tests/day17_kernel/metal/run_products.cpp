// Runs the kernel `products` of a shader: reads sizes and numbers, and prints the products.
#include SHADER
#include <cstdio>

int main() {
    metal::uint inner, rows, vectors;
    if (std::scanf("%u %u %u", &inner, &rows, &vectors) != 3) return 2;
    // NaN around the numbers, so that a read outside of them is seen.
    const float nan = __builtin_nanf("");
    std::vector<float> w(inner * rows + inner, nan), x(inner * vectors + inner, nan);
    std::vector<float> y((rows + vectors) * (rows + vectors), nan); // room for a wrong place, too
    for (metal::uint i = 0; i < inner * rows; ++i)
        if (std::scanf("%f", &w[i]) != 1) return 2;
    for (metal::uint i = 0; i < inner * vectors; ++i)
        if (std::scanf("%f", &x[i]) != 1) return 2;
    const bool ended = run_grid(metal::uint2{rows, vectors}, [&](metal::uint2 group, metal::uint lane) {
        products(w.data(), x.data(), y.data(), inner, rows, group, lane);
    });
    if (!ended) {
        std::puts("deadlock");
        return 0;
    }
    for (metal::uint i = 0; i < rows * vectors; ++i) std::printf("%.9g\n", y[i]);
}
