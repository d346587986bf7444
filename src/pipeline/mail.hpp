#pragma once

#include <deque>
#include <optional>

#include "src/comm/communicator.hpp"

namespace lockstep {

/// A stage's messages under way, over one communicator, whose operations
/// end in the order in which they were started: so what was sent before
/// something that has been received is gone, and its tensor need not be
/// kept.
class StageMail {
  public:
    explicit StageMail(Communicator& line) : line_(line) {}

    /// Something that was asked for.
    struct Arrival {
        Tensor tensor;
        std::optional<Work> work;
        int number = 0;
    };

    /// Keeps the tensor until it is gone.
    void send(const Tensor& tensor, int stage, SourceLine at);
    /// Into a new tensor of that shape.
    Arrival receive(const Tensor& buffer, int stage, SourceLine at);
    /// The device goes on when it is there.
    Tensor wait(Arrival& arrival);
    /// The device goes on when all is gone.
    void finish();

  private:
    struct Departure {
        Tensor tensor;
        Work work;
        int number;
    };

    Communicator& line_;
    int started_ = 0;
    std::deque<Departure> departures_;
};

}  // namespace lockstep
