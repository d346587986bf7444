// F02: two ranks split the heads of a model that answers requests. Each rank uses its own
// clock to drop requests that have waited too long. Rank 0 also sends the answers to
// users, so its clock shows a later time.
//
// finds: F02
// check: cheap
// ranks: 2
// parties: 0 | 1

#include <memory>
#include <optional>
#include <vector>

#include "src/comm/rank.hpp"
#include "src/inference/batcher.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    TensorParallel tp(device, rank.world());
    const GptSizes sizes{13, 32, 1, {8, 2}};
    KeyValueCache cache(device, DType::f32, {.pages = 16, .page_rows = 4});
    const auto gpt = make_gpt({device, DType::f32, 7, ""}, sizes,
                              with_cache(tensor_parallel({}, tp), cache));
    PagePool pool(16, 4);
    Batcher batcher(pool, {});
    for (std::int64_t id = 0; id < 3; ++id)
        batcher.add({id, 0, {1, 2, 3}, 4 + id, {}});
    const Picoseconds begin = device.now();
    // A pass takes 0.6 ms and sending 1 ms: after three passes only rank 0 is past the limit.
    const Picoseconds limit = begin + 4 * kSecond / 1000;
    for (int pass = 0; !batcher.idle(); ++pass) {
        const Tensor logits = gpt->infer(cache.begin(batcher.next()));
        batcher.take(sample_rows(device, rank.world(), logits, 13, batcher.wanted()));
        const bool sends = rank.index() == 0;  // twin: const bool sends = true;
        if (sends) device.sleep_until(device.now() + kSecond / 1000);
        if (device.now() > limit) batcher.drop(2);
    }
}
