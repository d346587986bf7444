#include "src/parallel/parameter_server.hpp"

#include "src/core/require.hpp"
#include "src/parallel/flat_buffer.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep {

// lesson: parameter-server
ServedWorker::ServedWorker(Device& device, Communicator& group,
                           std::vector<Parameter*> parameters, int server)
    : GradientSync(std::move(parameters)),
      group_(group),
      server_(server),
      values_(make_flat(device, this->parameters(), &Parameter::value)),
      gradients_(make_flat(device, this->parameters(), &Parameter::gradient)) {}

void ServedWorker::finish() {
    complete_gradients(parameters(), &group_);
    for (Parameter* parameter : parameters())
        parameter->complete = false;  // the server has the other workers' terms
    group_.send(gradients_, server_).wait();
}

void ServedWorker::update(Optimizer& /*optimizer*/) {
    group_.recv(values_, server_).wait();
}

void serve_parameters(Device& device, Communicator& group,
                      const std::vector<Parameter*>& parameters, Optimizer& optimizer,
                      int steps) {
    optimizer.require_of("serve_parameters", parameters);
    require(steps >= 0, "serve_parameters: {} steps; 0 or more are expected", steps);
    const Tensor values = make_flat(device, parameters, &Parameter::value);
    const Tensor gradients = make_flat(device, parameters, &Parameter::gradient);
    const MemoryScope scope(device, MemoryCategory::communication);
    const Tensor arrived = device.empty(gradients.shape(), gradients.dtype());
    const auto each_worker = [&](const auto& work) {
        for (int rank = 0; rank < group.size(); ++rank)
            if (rank != group.rank()) work(rank);
    };
    for (int step = 0; step < steps; ++step) {
        device.fill(gradients, 0);
        each_worker([&](int worker) {
            group.recv(arrived, worker).wait();
            device.add(gradients, arrived);
        });
        optimizer.step();
        each_worker([&](int worker) { group.send(values, worker).wait(); });
    }
}
// lesson: end

}  // namespace lockstep
