#include <algorithm>
#include <limits>

#include "lessons/assignments/decode/grading/given.hpp"
#include "src/course/task.hpp"

namespace lockstep {

namespace {

namespace given_case = lessons::decode;

using Generate = std::vector<Tokens> (*)(Rank&, const Gpt&, const std::vector<Prompt>&,
                                         std::int64_t);

HostTensor host_of(const std::vector<std::int32_t>& numbers) {
    return HostTensor::of<std::int32_t>({std::ssize(numbers)}, numbers);
}

/// Leaves what follows each prompt.
Task generates(Generate generate) {
    return [generate](Rank& rank, const TaskInputs& in, TaskOutputs& out) {
        const auto asked =
            given_case::from_numbers<given_case::GenerationCase>(in.numbers);
        const Gpt gpt = given::random_gpt(rank.device(), asked.sizes,
                                          static_cast<std::uint64_t>(asked.seed));
        const std::vector<Tokens> tokens =
            generate(rank, gpt, asked.drawn_prompts(), asked.page_rows);
        for (std::size_t i = 0; i < std::min(tokens.size(), asked.prompts.size()); ++i)
            out.values[fmt::format("tokens {}", i)] = host_of(tokens[i]);
    };
}

/// Appends a share of a pass as numbers; what is too large for one is the largest.
void append(std::vector<std::int32_t>& log, std::int64_t pass, const Share& share) {
    const auto add = [&](std::int64_t number) {
        log.push_back(static_cast<std::int32_t>(
            std::clamp<std::int64_t>(number, std::numeric_limits<std::int32_t>::min(),
                                     std::numeric_limits<std::int32_t>::max())));
    };
    for (const std::int64_t number :
         {pass, share.request, share.tokens.first, share.tokens.count,
          std::int64_t{std::ssize(share.tokens.pages)}})
        add(number);
    log.insert(log.end(), share.tokens.pages.begin(), share.tokens.pages.end());
}

/// Asks a batcher for passes, to each of which requests come as they are to, and leaves
/// them all: share by share, its pass, its request, its first token, how many, how many
/// pages, and these.
void batch(Rank& /*rank*/, const TaskInputs& in, TaskOutputs& out) {
    constexpr std::size_t kLongest = 1 << 20;
    const auto asked = given_case::from_numbers<given_case::BatchingCase>(in.numbers);
    const auto batcher = adapters::make_batcher(asked.rules);
    std::vector<std::int32_t> log;
    std::size_t added = 0;
    for (std::int64_t pass = 0; pass < asked.passes && log.size() < kLongest; ++pass) {
        for (; added < asked.requests.size() && asked.requests[added].pass <= pass;
             ++added)
            batcher->add({static_cast<std::int64_t>(added), asked.requests[added].prompt,
                          asked.requests[added].output});
        for (const Share& share : batcher->next())
            append(log, pass, share);
    }
    out.values["log"] = host_of(log);
    out.values["free"] = HostTensor({1}, DType::f64);
    out.values["free"].set(0, static_cast<double>(batcher->free_pages()));
}

}  // namespace

Tasks tasks() {
    return {{"generate", generates(adapters::generate)},
            {"generate shared", generates(adapters::generate_shared)},
            {"batch", batch}};
}

}  // namespace lockstep
