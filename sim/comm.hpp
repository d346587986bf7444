#pragma once

#include <memory>

#include "sim/team.hpp"

namespace lockstep::sim {

/// A rank's side of a communicator between virtual devices: hands what the rank launches
/// to the engine.
class Comm final : public Communicator {
  public:
    Comm(std::shared_ptr<Engine*> engine, Device& device, Team& team, int member)
        : Communicator(device, team.name, member, team.size()),
          engine_(std::move(engine)),
          team_(team) {}

  private:
    Engine& engine(SourceLine at) const;

    Work do_launch(std::span<CommOperation> operations, SourceLine at) override;
    std::unique_ptr<Communicator> do_split(int color, int key, const std::string& name,
                                           SourceLine at) override;

    std::shared_ptr<Engine*> engine_;
    Team& team_;
};

}  // namespace lockstep::sim
