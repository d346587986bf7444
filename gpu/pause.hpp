#pragma once

namespace lockstep::gpu {

/// How long a loop that asks the GPU again and again lies still between two questions:
/// not at all at first, for what takes microseconds; then a little, to leave the core to
/// others.
class Pause {
  public:
    void operator()();

  private:
    int asked_ = 0;
};

}  // namespace lockstep::gpu
