#include "src/inference/request_mix.hpp"

#include <cmath>
#include <utility>

#include "src/core/philox.hpp"
#include "src/core/require.hpp"

namespace lockstep {

std::vector<Request> make_requests(const RequestMix& mix) {
    constexpr double kMostSeconds = 1e6;
    require(mix.count > 0 && mix.vocabulary > 0 && mix.vocabulary <= INT32_MAX &&
                mix.per_second >= 0 && std::isfinite(mix.per_second),
            "{} requests, a vocabulary of {} and {} requests a second; the number of "
            "requests must be positive, the vocabulary 1 to {}, and the rate 0 or more",
            mix.count, mix.vocabulary, mix.per_second, INT32_MAX);
    require(mix.least_prompt > 0 && mix.least_output > 0 &&
                mix.least_prompt <= mix.most_prompt &&
                mix.least_output <= mix.most_output,
            "prompts of {} to {} tokens and outputs of {} to {}; at least 1 is expected, "
            "the smaller number first",
            mix.least_prompt, mix.most_prompt, mix.least_output, mix.most_output);
    const RandomStream arrivals(mix.seed, "arrivals"),
        prompts(mix.seed, "prompt lengths"), outputs(mix.seed, "output lengths"),
        tokens(mix.seed, "prompt tokens");
    const auto within = [](double uniform, std::int64_t least, std::int64_t most) {
        return least +
               static_cast<std::int64_t>(uniform * static_cast<double>(most - least + 1));
    };
    std::vector<Request> requests;
    double seconds = 0;
    std::uint64_t token = 0;
    for (std::int64_t id = 0; id < mix.count; ++id) {
        const auto number = static_cast<std::uint64_t>(id);
        if (mix.per_second > 0)
            seconds -= std::log(arrivals.uniform(number)) / mix.per_second;
        require(seconds < kMostSeconds,
                "{} requests, {} a second: number {} would come after {} s", mix.count,
                mix.per_second, id, kMostSeconds);
        Request request{id, picoseconds(seconds), {}, 0, {}};
        request.output =
            within(outputs.uniform(number), mix.least_output, mix.most_output);
        request.prompt.resize(static_cast<std::size_t>(
            within(prompts.uniform(number), mix.least_prompt, mix.most_prompt)));
        for (std::int32_t& each : request.prompt)
            each = static_cast<std::int32_t>(
                within(tokens.uniform(token++), 0, mix.vocabulary - 1));
        request.sampling.seed = mix.seed + number;
        requests.push_back(std::move(request));
    }
    return requests;
}

}  // namespace lockstep
