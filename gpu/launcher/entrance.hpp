#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/launcher/connection.hpp"
#include "src/os/deadline.hpp"

namespace lockstep::gpu {

/// Admits the processes of a run at rank 0. A process proves that it knows the run's
/// secret, and rank 0 proves the same to it. A process that knows the secret, but is of
/// another run or has a rank that is present, is refused and told why. Everybody else is
/// turned away without an answer. At most 256 strangers wait at a time, for at most 5
/// seconds each; if others wait behind them, for half a second.
class Entrance {
  public:
    explicit Entrance(const Placement& placement);

    /// Returns the socket to accept from; -1 while too many strangers wait.
    int listener() const;
    void add_connections(std::vector<Connection*>& all);

    struct Arrival {
        int rank;
        std::unique_ptr<Connection> line;
    };
    /// Returns the processes that have been admitted since the last call, each rank once.
    std::vector<Arrival> serve(Clock::time_point now);
    /// Returns the next time at which serve() must turn a stranger away, or accept
    /// others.
    Clock::time_point next_due() const;

    bool complete() const { return missing_ == 0; }
    std::vector<int> missing() const;
    /// Returns the number of connections that ended without a proof.
    int turned_away() const { return turned_away_; }
    void close();

  private:
    struct Stranger {
        std::unique_ptr<Connection> line;
        Clock::time_point since;
        Nonce challenge = fresh_nonce();
        std::optional<Hello> hello = {};
        bool proved = false;
    };
    void accept_all(Clock::time_point now);
    /// Acts on what the stranger says next. Returns false if its time here is over.
    bool hear(Stranger& stranger);
    /// Admits or refuses a stranger that has proved that it knows the secret.
    void judge(Stranger& stranger);
    /// Returns why a process is refused; empty if it is not.
    std::string objection(const Hello& hello) const;
    /// Returns the time until which no further stranger is accepted.
    Clock::time_point crowded_until() const;

    std::string address_;
    std::string secret_;
    Hello own_;
    Descriptor listener_;
    std::list<Stranger> strangers_;  // in the order in which they came
    std::vector<Arrival> arrivals_;
    std::vector<bool> here_;  // by rank
    int missing_;
    int turned_away_ = 0;
};

}  // namespace lockstep::gpu
