#include "lessons/grader/remote/remote_comm.hpp"

#include <algorithm>

namespace lockstep::lessons {

namespace {

class RemoteWork final : public PendingWork {
  public:
    RemoteWork(RankLine& line, std::int64_t number) : line_(line), number_(number) {}
    void wait(SourceLine at) override { line_.ask<void>(RankRequest::wait, number_, at); }
    std::size_t wait_any(std::span<PendingWork* const> works, SourceLine at) override {
        std::vector<std::int64_t> numbers;
        for (const PendingWork* work : works)
            numbers.push_back(static_cast<const RemoteWork*>(work)->number_);
        return static_cast<std::size_t>(
            line_.ask<std::int64_t>(RankRequest::wait_any, numbers, at));
    }

  private:
    void release() noexcept override {
        line_.tell(RankRequest::work_released, number_);
        delete this;
    }

    RankLine& line_;
    std::int64_t number_;
};

}  // namespace

RemoteComm::~RemoteComm() {
    if (number_ != kWorldNumber) line_.tell(RankRequest::communicator_gone, number_);
}

Work RemoteComm::work(std::int64_t number) {
    return Work(new RemoteWork(line_, number));
}

Work RemoteComm::do_launch(std::span<CommOperation> operations, SourceLine at) {
    const std::vector<CommOperation> launched(operations.begin(), operations.end());
    return work(line_.ask<std::int64_t>(RankRequest::launch, number_, launched, at));
}

Work RemoteComm::do_all_to_all_v(const Tensor& output,
                                 const std::vector<std::int64_t>& recv_counts,
                                 const Tensor& input,
                                 const std::vector<std::int64_t>& send_counts,
                                 SourceLine at) {
    return work(line_.ask<std::int64_t>(RankRequest::all_to_all_v, number_, output,
                                        recv_counts, input, send_counts, at));
}

std::unique_ptr<Communicator> RemoteComm::do_split(const SplitRequest& request,
                                                   SourceLine at) {
    // The communicator's number (negative: none), this rank's number in it, its size.
    const auto made =
        line_.ask<std::vector<int>>(RankRequest::split, number_, request, at);
    if (made.at(0) < 0) return nullptr;
    return std::make_unique<RemoteComm>(static_cast<RemoteDevice&>(device()), made.at(0),
                                        request.name, made.at(1), made.at(2));
}

BytesByVerb RemoteComm::do_bytes_sent(SourceLine at) const {
    const auto sent =
        line_.ask<std::vector<std::int64_t>>(RankRequest::bytes_sent, number_, at);
    BytesByVerb bytes{};
    std::copy_n(sent.begin(), std::min(sent.size(), bytes.size()), bytes.begin());
    return bytes;
}

void RemoteComm::do_expect_replicated(const Tensor& tensor, const std::string& name,
                                      SourceLine at) {
    line_.ask<void>(RankRequest::expect_replicated, number_, tensor, name, at);
}

void RemoteComm::do_declare_replicas(const Tensor& tensor, const std::string& name,
                                     SourceLine at) {
    line_.ask<void>(RankRequest::declare_replicas, number_, tensor, name, at);
}

void RemoteComm::do_declare_same(const Tensor& tensor, const std::string& name,
                                 SourceLine at) {
    line_.ask<void>(RankRequest::declare_same, number_, tensor, name, at);
}

void RemoteComm::do_declare_same(const HostTensor& values, const std::string& name,
                                 SourceLine at) {
    line_.ask<void>(RankRequest::declare_values, number_, values, name, at);
}

}  // namespace lockstep::lessons
