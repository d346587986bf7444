// F13: each rank answers its own requests with the experts of all ranks. A rank without
// requests computes no pass, so it sends nothing to the other ranks' experts.
//
// finds: F13
// check: cheap
// ranks: 2, 4
// parties: 0 | rest

#include <memory>
#include <vector>

#include "src/comm/rank.hpp"
#include "src/inference/batcher.hpp"
#include "src/parallel/expert_parallel.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    GptSizes sizes{13, 32, 1, {8, 2}};
    sizes.block.experts.count = rank.size();
    sizes.block.experts.gate.chosen = 2;
    Mesh mesh(rank.world(), {{"ep", rank.size()}});
    KeyValueCache cache(device, DType::f32, {.pages = 16, .page_rows = 4});
    const auto gpt = make_gpt({device, DType::f32, 7, ""}, sizes,
                              with_cache(expert_parallel({}, mesh, {"ep"}), cache));
    PagePool pool(16, 4);
    Batcher batcher(pool, {});
    // Rank 0 has less to do than the other ranks, so it ends earlier.
    batcher.add({0, 0, {1, 2, 3}, rank.index() == 0 ? 2 : 4, {}});
    const auto anybody_works = [&] {
        const Tensor works = device.zeros({1}, DType::f32);
        device.fill(works, batcher.idle() ? 0 : 1);
        rank.world().all_reduce(works).wait();  // line: asked
        return !device.has_numbers() || device.download(works).at(0) > 0;
    };
    for (int pass = 0; pass < 4 && anybody_works(); ++pass) {
        if (batcher.idle()) continue;                                   // twin:
        const Tensor logits = gpt->infer(cache.begin(batcher.next()));  // line: pass
        batcher.take(sample_rows(device, logits, batcher.wanted()));
    }
}
