#include "lessons/11_inference/hangs.hpp"

#include <functional>

#include "src/inference/decision.hpp"
#include "src/inference/gpt_service.hpp"
#include "src/parallel/expert_parallel.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"

namespace lockstep::lessons {

namespace {

constexpr CacheSizes kPages{.pages = 32, .page_rows = 4};
constexpr Picoseconds kMillisecond = kSecond / 1000;

GptSizes tiny_sizes(int experts = 0) {
    GptSizes sizes{/*vocabulary=*/16, /*context=*/32, /*layers=*/1, {8, 2}};
    sizes.block.experts.count = experts;
    sizes.block.experts.gate.chosen = 2;
    return sizes;
}

std::vector<Request> tiny_requests() {
    std::vector<Request> requests;
    for (std::int64_t id = 0; id < 4; ++id)
        requests.push_back({id, id * kMillisecond, {1, 2, 3}, 4 + 2 * id, {}});
    return requests;
}

/// Answers requests; `gives_up` says after each pass whether the last one is dropped, and
/// is told whether it is late by this rank's clock.
void answer_or_drop(Rank& rank, const std::function<bool(bool is_late)>& gives_up) {
    Device& device = rank.device();
    TensorParallel tp(device, rank.world());
    KeyValueCache cache(device, DType::f32, kPages);
    const auto gpt = make_gpt(ParameterInit{device, DType::f32, 1, ""}.for_inference(),
                              tiny_sizes(), with_cache(tensor_parallel({}, tp), cache));
    PagePool pool(kPages.pages, kPages.page_rows);
    Batcher batcher(pool, {});
    for (const Request& request : tiny_requests())
        batcher.add(request);
    // lesson: drop-when-late
    const Picoseconds limit = device.now() + 5 * kMillisecond;
    while (!batcher.idle()) {
        const Tensor logits = gpt->infer(cache.begin(batcher.next()));
        batcher.take(sample_rows(device, rank.world(), logits, 16, batcher.wanted()));
        // Rank 0 also sends answers to their users, and is later.
        if (rank.index() == 0) device.sleep_until(device.now() + kMillisecond);
        if (gives_up(device.now() > limit)) batcher.drop(3);
    }
    // lesson: end
    rank.keep_value("answered", static_cast<double>(batcher.answers().size()));
}

}  // namespace

void drop_by_own_clock(Rank& rank) {
    // lesson: drop-by-own-clock
    answer_or_drop(rank, [](bool is_late) { return is_late; });
    // lesson: end
}

void drop_by_one_clock(Rank& rank) {
    // lesson: drop-by-one-clock
    answer_or_drop(rank, [&](bool is_late) {
        return decided_by_first(rank.device(), rank.world(), is_late);
    });
    // lesson: end
}

void rest_without_requests(Rank& rank) {
    Device& device = rank.device();
    Mesh mesh(rank.world(), {{"ep", 2}});
    KeyValueCache cache(device, DType::f32, kPages);
    const auto gpt =
        make_gpt(ParameterInit{device, DType::f32, 1, ""}.for_inference(), tiny_sizes(4),
                 with_cache(expert_parallel({}, mesh, {"ep"}), cache));
    PagePool pool(kPages.pages, kPages.page_rows);
    Batcher batcher(pool, {});
    batcher.add(tiny_requests()[static_cast<std::size_t>(rank.index())]);
    // lesson: rest-without-requests
    while (!batcher.idle()) {
        const Tensor logits = gpt->infer(cache.begin(batcher.next()));
        batcher.take(sample_rows(device, logits, batcher.wanted()));
    }
    // lesson: end
}

void serve_each_other(Rank& rank) {
    const ServicePlan plan(tiny_sizes(4),
                           {.axes = {{"ep", 2}}, .cache = kPages, .dtype = DType::f32});
    GptService service(rank, plan);
    rank.keep_value("answered",
                    static_cast<double>(service.serve(tiny_requests()).size()));
}

}  // namespace lockstep::lessons
