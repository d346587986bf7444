#pragma once

#include <map>
#include <string>

#include "lessons/grader/remote/frames.hpp"
#include "lessons/grader/remote/request.hpp"
#include "src/core/wire.hpp"

namespace lockstep::lessons {

/// The rank's end of the line: asks the grader for everything that a Device and a
/// Communicator do. If the grader has gone, the process ends.
class RankLine final : public TensorNames {
  public:
    explicit RankLine(int descriptor) : frames_(descriptor) {}

    /// Sets the device whose tensors are sent over the line.
    void set_device(Device& device) { device_ = &device; }

    template <typename... T>
    void tell(RankRequest request, const T&... values) {
        WireWriter out(*this);
        out(request, values...);
        send(out.bytes());
    }
    template <typename Result, typename... T>
    Result ask(RankRequest request, const T&... values) {
        tell(request, values...);
        const std::string answer = receive();
        WireReader in(*this, answer);
        if constexpr (!std::is_void_v<Result>) return in.get<Result>();
    }
    std::string receive();

    TensorOnWire named(const Tensor& tensor) override;
    Tensor found(const TensorOnWire& tensor) override;
    /// Tells the grader that this process has freed a storage.
    void forget(const Storage& storage) noexcept;

  private:
    void send(std::string& message);

    Frames frames_;
    Device* device_ = nullptr;
    std::map<std::int64_t, Storage*> storages_;  ///< by handle
};

/// Returns a storage's handle. This process has no data, so it stores the handle as the
/// data's address.
std::int64_t handle_of(const Storage& storage);

}  // namespace lockstep::lessons
