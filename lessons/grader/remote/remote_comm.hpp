#pragma once

#include "lessons/grader/remote/remote_device.hpp"
#include "src/comm/communicator.hpp"

namespace lockstep::lessons {

/// A communicator in the process of a rank: sends the rank's launches to the grader,
/// which has the real communicator.
class RemoteComm final : public Communicator {
  public:
    RemoteComm(RemoteDevice& device, int number, const std::string& name, int rank,
               int size)
        : Communicator(device, name, rank, size), line_(device.line()), number_(number) {}
    ~RemoteComm() override;

  private:
    Work work(std::int64_t number);
    Work do_launch(std::span<CommOperation> operations, SourceLine at) override;
    Work do_all_to_all_v(const Tensor& output,
                         const std::vector<std::int64_t>& recv_counts,
                         const Tensor& input,
                         const std::vector<std::int64_t>& send_counts,
                         SourceLine at) override;
    std::unique_ptr<Communicator> do_split(const SplitRequest& request,
                                           SourceLine at) override;
    BytesByVerb do_bytes_sent(SourceLine at) const override;
    void do_expect_replicated(const Tensor& tensor, const std::string& name,
                              SourceLine at) override;
    void do_declare_replicas(const Tensor& tensor, const std::string& name,
                             SourceLine at) override;
    void do_declare_same(const Tensor& tensor, const std::string& name,
                         SourceLine at) override;
    void do_declare_same(const HostTensor& values, const std::string& name,
                         SourceLine at) override;

    RankLine& line_;
    int number_;
};

}  // namespace lockstep::lessons
