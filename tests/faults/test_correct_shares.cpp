// Ranks with unequal shares, one of them without rows, and no mistake. The checker must
// find nothing.

#include "src/nn/dropout.hpp"
#include "tests/catch.hpp"
#include "tests/faults/correct.hpp"

namespace lockstep::test {

TEST_CASE("correct: dropout by rows of the batch, with a rank that has no rows",
          "[faults]") {
    must_stay_silent(2, [](Rank& rank) {
        constexpr std::int64_t kRows = 4;
        Device& device = rank.device();
        Sequential model;
        model.add<Linear>(ParameterInit{device, DType::f64, 7, "layer"}, 6, 5);
        Dropout& dropout = model.add<Dropout>(device, 0.5, RandomStream(9, "dropout"));
        Sgd optimizer(model.parameters());
        for (int i = 0; i < kSteps; ++i) {
            // One of the two ranks has no rows, so both shares begin at the same row.
            const std::int64_t rows = rank.index() == i % 2 ? 0 : kRows;
            dropout.set_part(kRows * i * 5);
            zero_gradients(model);
            Saved saved;
            Tensor y;
            {
                const PhaseScope phase(device, Phase::forward, 0);
                y = model.forward(random_rows(device, "x", kRows * i, rows, 6), saved);
            }
            const Tensor target = random_rows(device, "y", kRows * i, rows, 5);
            {
                const PhaseScope phase(device, Phase::backward, 0);
                if (rows == 0)
                    model.backward(target, saved);
                else
                    model.backward(mean_squared_error(device, y, target).gradient, saved);
            }
            for (const Parameter* parameter : model.parameters())
                rank.world().all_reduce(parameter->gradient).wait();
            step(device, optimizer);
        }
    });
}

}  // namespace lockstep::test
