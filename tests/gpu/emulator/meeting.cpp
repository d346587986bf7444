#include "tests/gpu/emulator/meeting.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace emulated {

namespace {

Whereabouts whereabouts(int device) {
    Whereabouts here;
    here.device = device;
    if (const char* given = std::getenv("NCCL_HOSTID"))
        std::snprintf(here.host, sizeof here.host, "%s", given);
    else
        gethostname(here.host, sizeof here.host - 1);
    return here;
}

void refuse_shared_gpus(const std::vector<Whereabouts>& all) {
    for (std::size_t i = 0; i < all.size(); ++i)
        for (std::size_t j = 0; j < i; ++j)
            if (all[i].device == all[j].device &&
                std::strcmp(all[i].host, all[j].host) == 0)
                throw NcclTrouble(ncclInvalidUsage, "Duplicate GPU detected: rank " +
                                                        std::to_string(j) + " and rank " +
                                                        std::to_string(i) +
                                                        " both on CUDA device " +
                                                        std::to_string(all[i].device));
}

std::string door(const std::string& name, int rank) {
    return name + "#" + std::to_string(rank);
}

}  // namespace

std::vector<Descriptor> meet(const std::string& name, int rank, int size, int device,
                             const Stop& stop) {
    std::vector<Descriptor> sockets(static_cast<std::size_t>(size));
    // All ranks listen before the exchange ends, so no rank connects too early.
    const Descriptor listener = listen_as(door(name, rank));
    refuse_shared_gpus(exchange(name, rank, size, whereabouts(device), stop));
    for (int peer = 0; peer < rank; ++peer) {
        Descriptor& socket = sockets[static_cast<std::size_t>(peer)];
        socket = connect_to(door(name, peer), stop);
        send_all(socket, &rank, sizeof rank, stop);
    }
    for (int higher = rank + 1; higher < size; ++higher) {
        Descriptor socket = accept_from(listener, stop);
        int peer = 0;
        receive_all(socket, &peer, sizeof peer, stop);
        sockets.at(static_cast<std::size_t>(peer)) = std::move(socket);
    }
    return sockets;
}

}  // namespace emulated
