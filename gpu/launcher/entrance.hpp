#pragma once

#include <list>
#include <memory>
#include <vector>

#include "gpu/launcher/connection.hpp"
#include "gpu/launcher/placement.hpp"
#include "gpu/launcher/socket.hpp"

namespace lockstep::gpu {

/// Where the processes of a run come to rank 0. Who is not of the run, or comes twice, is
/// turned away with a sentence; who does not speak our language, without one.
class Entrance {
  public:
    Entrance(const Placement& placement, Descriptor listener);

    int listener() const { return listener_.number(); }
    std::vector<Connection*> connections();

    struct Arrival {
        int rank;
        std::unique_ptr<Connection> connection;
    };
    /// Those who have said who they are, each rank once.
    std::vector<Arrival> serve(Clock::time_point now);
    /// When serve() has somebody to turn away for his silence.
    Clock::time_point next_due() const;

    bool complete() const { return missing_ == 0; }
    std::vector<int> missing() const;
    void close();

  private:
    struct Stranger {
        std::unique_ptr<Connection> connection;
        Clock::time_point due;  // when it must have spoken
    };
    void accept_all(Clock::time_point now);
    /// Why a process cannot come in; empty where it can.
    std::string objection(const Hello& hello) const;

    Placement placement_;
    Hello own_;
    Descriptor listener_;
    std::list<Stranger> strangers_;
    std::vector<bool> here_;
    int missing_;
};

}  // namespace lockstep::gpu
