#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gpu/launcher/message.hpp"

namespace lockstep::gpu {

/// The exchange that is open at rank 0: something from every process, in any order.
class Round {
  public:
    explicit Round(int size);

    /// Takes one process's message, an all_gather or a broadcast. ProtocolError where it
    /// belongs to another exchange.
    void add(int rank, Message message);
    /// What a program did wrong, if so: the kinds differ, or one that the others wait for
    /// has left. With the rank that did it.
    std::optional<Failure> mistake(const std::vector<bool>& left) const;

    bool complete() const { return present_ == parts_.size(); }
    /// What all processes get: a list of everybody's bytes, or of rank 0's. Opens the
    /// next exchange.
    Message finish();

  private:
    uint64_t sequence_ = 1;
    std::vector<std::optional<Message>> parts_;
    size_t present_ = 0;
};

}  // namespace lockstep::gpu
