#pragma once

#include <functional>

#include "tests/device/support.hpp"

namespace lockstep::test {

/// Uploads `values` so that its data begins `shift` elements into its storage.
inline Tensor uploaded(Bench& bench, const HostTensor& values, std::int64_t shift) {
    const Tensor room = bench->empty({shift + values.elements()}, values.dtype());
    Tensor tensor = room.rows(shift, values.elements()).reshaped(values.shape());
    bench->upload_into(tensor, values);
    return tensor;
}

/// Checks that `compute` gives the same result for aligned and for unaligned operands.
inline void same_anywhere(
    Shape shape, DType dtype,
    const std::function<Tensor(Bench&, const Tensor&, const Tensor&)>& compute) {
    const HostTensor a = random_values(shape, dtype, "a", -3, 3);
    const HostTensor b = random_values(shape, dtype, "b", -3, 3);
    HostTensor aligned;
    for (const std::int64_t shift : {0, 1, 2, 3, 5, 7, 8, 11}) {
        Bench bench;
        const Tensor result = compute(bench, uploaded(bench, a, shift),
                                      uploaded(bench, b, shift == 5 ? 2 : shift));
        if (shift == 0) aligned = bench->download(result);
        CAPTURE(shape.text(), shift);
        REQUIRE(bench->download(result) == aligned);
    }
}

}  // namespace lockstep::test
