#include "src/inference/server.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "src/core/philox.hpp"
#include "src/core/require.hpp"

namespace lockstep {

namespace {

/// How many of the requests have come by now, as rank 0 of the group sees it.
std::size_t arrived(Device& device, Communicator* group,
                    const std::vector<Request>& requests) {
    const auto later =
        std::ranges::upper_bound(requests, device.now(), {}, &Request::arrival);
    const auto own = static_cast<std::int32_t>(later - requests.begin());
    if (group == nullptr) return static_cast<std::size_t>(own);
    const MemoryScope scope(device, MemoryCategory::workspace);
    const Tensor count =
        device.upload(HostTensor::of<std::int32_t>({1}, std::vector{own}));
    group->broadcast(count, 0).wait();
    const HostTensor told = device.download(count);
    return static_cast<std::size_t>(device.has_numbers() ? told.at(0) : own);
}

/// Nobody else's requests are in the batcher, and these stand in order.
void require_fresh(Batcher& batcher, const std::vector<Request>& requests) {
    require(
        batcher.idle() && batcher.answers().empty(),
        "serve() with a batcher that has other requests, or answers that nobody took");
    require(std::ranges::is_sorted(requests, {}, &Request::arrival),
            "requests that do not stand in the order of their arrivals");
}

}  // namespace

// lesson: serve
std::vector<Served> serve(Device& device, Communicator* group, Batcher& batcher,
                          const std::vector<Request>& requests,
                          const ComputePass& compute) {
    require_fresh(batcher, requests);
    std::map<std::int64_t, Served> under_way;
    std::set<std::int64_t> have_tokens;
    std::vector<Served> ended;
    std::size_t taken = 0;
    while (taken < requests.size() || !batcher.idle()) {
        if (batcher.idle()) device.sleep_until(requests[taken].arrival);
        for (const std::size_t all = arrived(device, group, requests); taken < all;) {
            const Request& request = requests[taken++];
            batcher.add(request);
            under_way[request.id].arrival = request.arrival;
        }
        if (batcher.idle()) continue;

        const Pass pass = batcher.next();
        require(!pass.ids.empty(), "nothing goes on: the pool's pages are others'");
        const std::vector<Wanted> wanted = batcher.wanted();
        batcher.take(compute(pass, wanted));
        for (const Wanted& row : wanted) {
            Served& of = under_way.at(row.request);
            of.last = device.now();
            if (have_tokens.insert(row.request).second) of.first = of.last;
        }
        for (Answer& answer : batcher.answers()) {
            const auto of = under_way.find(answer.id);
            of->second.answer = std::move(answer);
            ended.push_back(std::move(of->second));
            have_tokens.erase(of->first);
            under_way.erase(of);
        }
    }
    return ended;
}
// lesson: end

namespace {

ServiceReport::Spread spread_of(std::vector<Picoseconds> times) {
    if (times.empty()) return {};
    std::ranges::sort(times);
    const auto at = [&](double part) {
        const double rank = std::ceil(part * static_cast<double>(times.size()));
        return times[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
    };
    return {at(0.5), at(0.9), at(0.99)};
}

}  // namespace

ServiceReport report_of(const std::vector<Served>& served, const ServiceLimits& limits) {
    ServiceReport report;
    std::vector<Picoseconds> to_first, per_token;
    Picoseconds begin = 0, end = 0;
    std::int64_t kept = 0;
    for (const Served& of : served) {
        begin = report.requests == 0 ? of.arrival : std::min(begin, of.arrival);
        end = std::max(end, of.last);
        ++report.requests;
        report.tokens += static_cast<std::int64_t>(of.answer.tokens.size());
        report.preemptions += of.answer.preemptions;
        report.reused += of.answer.reused;
        kept += limits.keeps(of);
        to_first.push_back(of.to_first());
        if (of.answer.tokens.size() > 1) per_token.push_back(of.per_token());
    }
    if (report.requests == 0) return report;
    report.seconds = static_cast<double>(end - begin) / static_cast<double>(kSecond);
    report.kept = static_cast<double>(kept) / static_cast<double>(report.requests);
    if (report.seconds > 0) report.goodput = static_cast<double>(kept) / report.seconds;
    report.to_first = spread_of(std::move(to_first));
    report.per_token = spread_of(std::move(per_token));
    return report;
}

std::vector<Request> make_requests(const RequestMix& mix) {
    constexpr double kMostSeconds = 1e6;
    require(mix.count > 0 && mix.vocabulary > 0 && mix.vocabulary <= INT32_MAX &&
                mix.per_second >= 0 && std::isfinite(mix.per_second),
            "{} requests over a vocabulary of {}, {} a second; the first must be "
            "positive, the second, too, and at most {}, and the last one not negative",
            mix.count, mix.vocabulary, mix.per_second, INT32_MAX);
    require(mix.least_prompt > 0 && mix.least_output > 0 &&
                mix.least_prompt <= mix.most_prompt &&
                mix.least_output <= mix.most_output,
            "prompts of {} to {} tokens and outputs of {} to {}; 1 or more are expected, "
            "the lesser number first",
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
