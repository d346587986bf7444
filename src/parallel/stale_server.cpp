#include "src/parallel/stale_server.hpp"

#include <algorithm>
#include <utility>

#include "src/core/require.hpp"
#include "src/parallel/flat_buffer.hpp"

namespace lockstep {

std::vector<std::unique_ptr<Communicator>> pairs_with_server(Communicator& group,
                                                             int server) {
    std::vector<std::unique_ptr<Communicator>> pairs;
    for (int worker = 0; worker < group.size(); ++worker)
        if (worker != server) pairs.push_back(group.subgroup({server, worker}, "pair"));
    return pairs;
}

namespace {

/// A worker, as the server sees it.
struct Worker {
    Communicator* pair = nullptr;
    Tensor arriving{};
    std::int64_t clock = 0;   ///< number of its gradients that have arrived
    bool came = false;        ///< its last gradient is not applied yet
    bool waits = false;       ///< its last gradient is not answered yet
    std::int64_t behind = 0;  ///< how many clocks old its values are
    std::int64_t taken = 0;   ///< number of gradients in its values
};

}  // namespace

// lesson: stale-server
std::vector<StaleUpdate> serve_stale(
    Device& device, const std::vector<std::unique_ptr<Communicator>>& pairs,
    const std::vector<Parameter*>& parameters, Optimizer& optimizer, std::int64_t steps,
    std::int64_t bound) {
    require(
        !pairs.empty() && steps > 0 && bound >= 0,
        "serve_stale: {} workers, {} steps, bound {}; at least 1, 1 and 0 are expected",
        pairs.size(), steps, bound);
    optimizer.require_of("serve_stale", parameters);
    const Tensor values = make_flat(device, parameters, &Parameter::value);
    const Tensor gradients = make_flat(device, parameters, &Parameter::gradient);
    const MemoryScope scope(device, MemoryCategory::communication);
    std::vector<Worker> workers;
    std::vector<Work> arrivals;
    for (const auto& pair : pairs) {
        workers.push_back(
            {pair.get(), device.empty(gradients.shape(), gradients.dtype())});
        arrivals.push_back(pair->recv(workers.back().arriving, 1));
    }

    std::vector<StaleUpdate> updates;
    const auto take_in = [&] {
        device.fill(gradients, 0);
        const auto before = static_cast<std::int64_t>(updates.size());
        for (std::size_t i = 0; i < workers.size(); ++i) {
            Worker& worker = workers[i];
            if (!std::exchange(worker.came, false)) continue;
            device.add(gradients, worker.arriving);
            updates.push_back({static_cast<int>(i), worker.clock - 1, worker.behind,
                               before - worker.taken});
        }
        optimizer.step();
    };
    const std::int64_t all = steps * static_cast<std::int64_t>(workers.size());
    for (std::int64_t came = 0; came < all; ++came) {
        Worker& first = workers[wait_any(arrivals)];
        ++first.clock;
        first.came = first.waits = true;
        const std::int64_t slowest =
            std::ranges::min_element(workers, {}, &Worker::clock)->clock;
        const auto may_go = [&](const Worker& worker) {
            return worker.waits && worker.clock - slowest <= bound;
        };
        if (std::ranges::none_of(workers, may_go)) continue;
        take_in();
        for (std::size_t i = 0; i < workers.size(); ++i) {
            Worker& worker = workers[i];
            if (!may_go(worker)) continue;
            worker.waits = false;
            worker.behind = worker.clock - slowest;
            worker.taken = static_cast<std::int64_t>(updates.size());
            worker.pair->send(values, 1).wait();
            if (worker.clock < steps) arrivals[i] = worker.pair->recv(worker.arriving, 1);
        }
    }
    return updates;
}
// lesson: end

}  // namespace lockstep
