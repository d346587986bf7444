#include "gpu/launcher/variables.hpp"

#include <charconv>
#include <unistd.h>

#include <fmt/format.h>

#include "gpu/launcher/address.hpp"
#include "src/core/require.hpp"

namespace lockstep::gpu {

namespace {

constexpr int kMostProcesses = 1 << 20;

}  // namespace

Variables::Variables(const Environment& environment, std::string launcher,
                     std::string sign)
    : environment_(environment), launcher_(std::move(launcher)), sign_(std::move(sign)) {}

bool Variables::has(const std::string& name) const {
    return environment_(name).has_value();
}

std::string Variables::text(const std::string& name) const {
    const std::optional<std::string> value = environment_(name);
    require(value.has_value() && !value->empty(),
            "{} is set, as {} does, but {} is not: set it too, or unset {}", sign_,
            launcher_, name, sign_);
    return *value;
}

int Variables::number(const std::string& name, int least, int most) const {
    const std::string value = text(name);
    const char* end = value.data() + value.size();
    int number = 0;
    const auto [stop, error] = std::from_chars(value.data(), end, number);
    require(error == std::errc() && stop == end && number >= least && number <= most,
            "{} is \"{}\"; expected a whole number from {} to {}, as {} "
            "sets it",
            name, value, least, most, launcher_);
    return number;
}

Placement read_placement(const Variables& variables, const VariableNames& names) {
    Placement placement;
    placement.launcher = variables.launcher();
    placement.size = variables.number(names.size, 1, kMostProcesses);
    placement.rank = variables.number(names.rank, 0, placement.size - 1);
    placement.local_size = variables.number(names.local_size, 1, placement.size);
    placement.local_rank =
        variables.number(names.local_rank, 0, placement.local_size - 1);
    return placement;
}

Rendezvous choose_rendezvous(const Variables& variables, const Placement& placement,
                             const std::string& job, const std::string& address) {
    if (variables.has("LOCKSTEP_RENDEZVOUS"))
        return {
            parse_address(variables.text("LOCKSTEP_RENDEZVOUS"), "LOCKSTEP_RENDEZVOUS")
                .text()};
    if (placement.size == 1) return {};
    if (variables.has("NCCL_COMM_ID")) {
        Address nccl = parse_address(variables.text("NCCL_COMM_ID"), "NCCL_COMM_ID");
        nccl.port = port_beside(nccl.port);
        return {nccl.text()};
    }
    if (placement.local_size == placement.size && !job.empty())
        return {fmt::format("unix:lockstep-{}-{:016x}", getuid(), hash_text(job))};
    require(!address.empty(),
            "{} started {} processes, {} of them on this machine, and gives no address "
            "where they could meet: set LOCKSTEP_RENDEZVOUS=host:port for all of them, "
            "with the host of rank 0 and a free port",
            placement.launcher, placement.size, placement.local_size);
    return {address};
}

int port_beside(int port) {
    return port < 65535 ? port + 1 : port - 1;
}

unsigned long long hash_text(const std::string& text) {
    // FNV-1a, and a last mixing so that short texts spread over all bits.
    unsigned long long hash = 0xcbf29ce484222325;
    for (const unsigned char letter : text)
        hash = (hash ^ letter) * 0x100000001b3;
    hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccd;
    return hash ^ (hash >> 33);
}

}  // namespace lockstep::gpu
