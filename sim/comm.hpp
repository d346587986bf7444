#pragma once

#include <memory>

#include "sim/team.hpp"

namespace lockstep::sim {

/// A rank's side of a communicator between virtual devices. Passes the rank's launches to
/// the engine.
class Comm final : public Communicator {
  public:
    /// `made_at` is the line of the split; empty for world.
    Comm(std::shared_ptr<Engine*> engine, Device& device, Team& team, int member,
         SourceLine made_at)
        : Communicator(device, team.name, member, team.size()),
          engine_(std::move(engine)),
          team_(team),
          made_at_(made_at) {}
    /// Tells the engine, which checks whether the rank has waited for all its work.
    ~Comm() override;

  private:
    Engine& engine(SourceLine at) const;

    Work do_launch(std::span<CommOperation> operations, SourceLine at) override;
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

    std::shared_ptr<Engine*> engine_;
    Team& team_;
    SourceLine made_at_;
};

}  // namespace lockstep::sim
