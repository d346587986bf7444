#pragma once

#include <functional>
#include <string>

#include "src/comm/communicator.hpp"
#include "src/core/require.hpp"
#include "src/device/device.hpp"
#include "src/run/run_report.hpp"

namespace lockstep {

/// One rank of a run, with its device and its communicators. Programs use this interface.
class Rank {
  public:
    Rank(Device& device, Communicator& world, RankReport& report)
        : device_(device), world_(world), report_(report) {}

    int index() const { return world_.rank(); }
    int size() const { return world_.size(); }
    Device& device() { return device_; }
    /// The device's host, a processor and its memory: see Device::host.
    Device& host(SourceLine at = SourceLine::here()) { return device_.host(at); }
    Communicator& world() { return world_; }

    /// Keeps a tensor of the device or its host in the run's report. It costs no virtual
    /// time. If a name is kept twice, the later value replaces the earlier.
    void keep(const std::string& name, const Tensor& tensor,
              SourceLine at = SourceLine::here()) {
        Device* const place = tensor.device();
        const bool is_mine = place != nullptr && place->index() == device_.index();
        report_.kept.insert_or_assign(name,
                                      (is_mine ? *place : device_).peek(tensor, at));
        report_.kept_at.insert_or_assign(name, at);
        report_.kept_parts.erase(name);
    }
    /// Keeps a shard and its part of the whole. RunReport::whole puts the shards
    /// together. Throws UsageError if the shapes of tensor and part differ, or if the
    /// part exceeds the whole.
    void keep(const std::string& name, const Tensor& tensor, const Part& part,
              SourceLine at = SourceLine::here()) {
        require(tensor.shape() == part.shape, at,
                "keep('{}'): the tensor has shape {}, but its part has {}", name,
                tensor.shape(), part.shape);
        require(is_sound(part), at,
                "keep('{}'): its part does not fit into the whole of shape {}", name,
                part.whole);
        keep(name, tensor, at);
        report_.kept_parts.insert_or_assign(name, part);
    }
    /// Appends a value to the series `name` in the run's report.
    void keep_value(const std::string& name, double value,
                    SourceLine at = SourceLine::here()) {
        report_.series[name].push_back(value);
        report_.series_at.try_emplace(name, at);
    }

    /// Says that what looks like a mistake of class `fault` ("F21") is meant, and why; if
    /// `name` is given, only for the tensor of that name. --check full then passes it on
    /// all ranks, and the record keeps the word. Throws UsageError for a class that only
    /// full checks find and that no program can mean, such as a race.
    void intended(const std::string& fault, const std::string& why,
                  const std::string& name = "", SourceLine at = SourceLine::here()) {
        require(can_be_intended(fault), at,
                "intended('{}'): F21 to F29 can be meant; other mistakes stop real "
                "devices or make their values random",
                fault);
        require(!why.empty(), at, "intended('{}'): say why", fault);
        report_.intended.push_back({fault, why, name, at});
    }

  private:
    Device& device_;
    Communicator& world_;
    RankReport& report_;
};

using Program = std::function<void(Rank&)>;

/// Devices that can run a program: virtual ones in this process, or this process's GPU.
class Cluster {
  public:
    virtual ~Cluster() = default;
    virtual int size() const = 0;

    /// Runs the program on every device to its end. When one rank fails, all ranks stop,
    /// and the first error is thrown: the program's exception, whose sentence then names
    /// the rank (see rethrow_naming_rank), or a FaultError that explains the mistake.
    virtual RunReport run(const Program& program) = 0;
};

}  // namespace lockstep
