#include "src/pipeline/mail.hpp"

#include <utility>

namespace lockstep {

void StageMail::send(const Tensor& tensor, int stage, SourceLine at) {
    departures_.push_back(
        {tensor, line_.send(tensor, stage, at), started_++});
}

StageMail::Arrival StageMail::receive(const Tensor& buffer, int stage,
                                      SourceLine at) {
    return {buffer, line_.recv(buffer, stage, at), started_++};
}

Tensor StageMail::wait(Arrival& arrival) {
    arrival.work->wait();
    arrival.work.reset();
    while (!departures_.empty() &&
           departures_.front().number < arrival.number)
        departures_.pop_front();
    return std::exchange(arrival.tensor, {});
}

void StageMail::finish() {
    if (!departures_.empty()) departures_.back().work.wait();
    departures_.clear();
}

}  // namespace lockstep
