#pragma once

#include <string>
#include <vector>

#include "tests/gpu/emulator/sockets.hpp"

namespace emulated {

/// Returns the values of all ranks, in rank order. Rank 0 collects and distributes them.
/// All ranks must call this with one name, and nothing else may use the name.
template <typename T>
std::vector<T> exchange(const std::string& name, int rank, int size, const T& mine,
                        const Stop& stop) {
    std::vector<T> all(static_cast<std::size_t>(size), mine);
    if (rank > 0) {
        const Descriptor root = connect_to(name, stop);
        send_all(root, &rank, sizeof rank, stop);
        send_all(root, &mine, sizeof mine, stop);
        receive_all(root, all.data(), all.size() * sizeof(T), stop);
        return all;
    }
    if (size == 1) return all;
    const Descriptor listener = listen_as(name);
    std::vector<Descriptor> others;
    while (static_cast<int>(others.size()) < size - 1) {
        others.push_back(accept_from(listener, stop));
        int from = 0;
        receive_all(others.back(), &from, sizeof from, stop);
        receive_all(others.back(), &all.at(static_cast<std::size_t>(from)), sizeof(T),
                    stop);
    }
    for (const Descriptor& other : others)
        send_all(other, all.data(), all.size() * sizeof(T), stop);
    return all;
}

/// A rank's host and the number of its GPU.
struct Whereabouts {
    char host[64] = {};
    int device = 0;
};

/// Returns an element for each rank: a socket to it, but an empty element for this rank
/// itself. Refuses two ranks on one GPU.
std::vector<Descriptor> meet(const std::string& name, int rank, int size, int device,
                             const Stop& stop);

}  // namespace emulated
