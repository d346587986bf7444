#include <cmath>

#include <fmt/format.h>

#include "lessons/03_tensor_parallel_block/tensor_parallel_lesson.hpp"
#include "src/core/units.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/optimizer.hpp"
#include "src/parallel/tensor_parallel_block.hpp"

namespace lockstep::lessons {

namespace {

constexpr std::int64_t kHidden = 20'480;
constexpr std::int64_t kHeads = 160;

std::int64_t of(const RankReport& rank, MemoryCategory category) {
    return rank.memory.category_peak[category];
}

/// Parameters, gradients and AdamW's state of a block, in 16 bits.
RankReport block_of(int ranks) {
    return make_shapes_only_cluster(ranks)
        ->run([](Rank& rank) {
            TensorParallel tp(rank.device(), rank.world());
            const auto block =
                make_parallel_block({rank.device(), DType::bf16, 1, "h.0"},
                                    tp, {kHidden, kHeads});
            const AdamW optimizer(block->parameters());
        })
        .ranks.front();
}

void show_block_sizes(Page& page) {
    page.text(
        "One whole block has 12 h² weights and 13 h numbers beside (biases "
        "and norms), and training holds its gradients and AdamW's two "
        "moments as well; all in 16 bits here (mixed precision holds 16 "
        "bytes a weight instead of 8).");
    Table table{{"devices", "parameters", "gradients", "optimizer",
                 "together, each"},
                {}};
    std::vector<Check> checks;
    for (const int ranks : {1, 2, 4, 8, 16}) {
        const RankReport rank = block_of(ranks);
        table.rows.push_back(
            {std::to_string(ranks),
             bytes_text(of(rank, MemoryCategory::parameters)),
             bytes_text(of(rank, MemoryCategory::gradients)),
             bytes_text(of(rank, MemoryCategory::optimizer)),
             bytes_text(rank.memory.peak)});
        // Of the 13 h, two norms (4 h) and the biases after a row split (2
        // h) are on every device; 7 h are shared out.
        const std::int64_t expected =
            2 *
            ((12 * kHidden * kHidden + 7 * kHidden) / ranks + 6 * kHidden);
        checks.push_back(Check::equal(
            fmt::format("bytes of parameters on {} device{}, 2 ((12 h² + 7 "
                        "h)/t + 6 h)",
                        ranks, ranks == 1 ? "" : "s"),
            static_cast<double>(of(rank, MemoryCategory::parameters)),
            static_cast<double>(expected)));
    }
    page.table(table);
    for (const Check& check : checks)
        page.check(check);
}

}  // namespace

void TensorParallelLesson::size(Page& page) {
    page.text(fmt::format(
        "Why share weights out at all? Take a hidden size of {}, and an "
        "MLP four times as wide. Shapes are enough to know what it needs: "
        "the simulator allocates everything, and computes nothing.",
        count_text(kHidden)));
    const RankReport up =
        make_shapes_only_cluster(1)
            ->run([](Rank& rank) {
                const Linear layer({rank.device(), DType::bf16, 1, "c_fc"},
                                   kHidden, 4 * kHidden, /*bias=*/false);
            })
            .ranks.front();
    const std::int64_t weights = 4 * kHidden * kHidden;
    page.predict(
        "How many bytes does the weight of its first layer, "
        "20,480 to 81,920, take in 16 bits?",
        static_cast<double>(2 * weights), "bytes",
        "2 * 4 * 20,480^2: 1.68 billion weights, 3.36 GB");
    page.check(Check::equal(
        "bytes of parameters by the ledger",
        static_cast<double>(of(up, MemoryCategory::parameters)),
        static_cast<double>(2 * weights)));

    show_block_sizes(page);
    page.text(
        "One block fits a device of 80 GB; a model has dozens of them. "
        "Shared out to 8 devices, a block's weights are an eighth, and "
        "with "
        "sequence parallelism its activations are too. What is left of the "
        "model to share out is its depth: pipelines.");
}

}  // namespace lockstep::lessons
