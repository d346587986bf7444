#include "sim/comm.hpp"

#include <fmt/format.h>

#include "sim/engine.hpp"
#include "src/core/require.hpp"

namespace lockstep::sim {

Engine& Comm::engine(SourceLine at) const {
    require(*engine_ != nullptr, at, [&] {
        return fmt::format("{} was used after the run that made it was over", name());
    });
    Engine& engine = **engine_;
    const int owner = team_.ranks[static_cast<std::size_t>(rank())];
    require(engine.current() == owner, at, [&] {
        return fmt::format(
            "rank {} used the {} communicator of rank {}; ranks share nothing but "
            "messages",
            engine.current(), name(), owner);
    });
    return engine;
}

Work Comm::do_launch(std::span<CommOperation> operations, SourceLine at) {
    return engine(at).launch(team_, rank(), operations, at);
}

std::unique_ptr<Communicator> Comm::do_split(int color, int key, const std::string& name,
                                             SourceLine at) {
    return engine(at).split(team_, rank(), color, key, name, at);
}

}  // namespace lockstep::sim
