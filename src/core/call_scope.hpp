#pragma once

#include "src/core/source_line.hpp"

namespace lockstep {

/// The outermost call of the library that a rank's program has under way. What it
/// launches is launched for this line, which is the program's own.
struct OpenCall {
    SourceLine at;
    int depth = 0;  ///< calls inside calls; 0: none is under way
};

/// The call of the rank that runs on this thread; null where nobody asks for it.
inline constinit thread_local OpenCall* open_call = nullptr;

/// While it lives, the program is in the call at line `at`. The public functions of
/// modules and strategies make one.
class CallScope {
  public:
    explicit CallScope(SourceLine at) : call_(open_call) {
        if (call_ != nullptr && call_->depth++ == 0) call_->at = at;
    }
    ~CallScope() {
        if (call_ != nullptr) --call_->depth;
    }
    CallScope(const CallScope&) = delete;
    CallScope& operator=(const CallScope&) = delete;

  private:
    OpenCall* call_;
};

}  // namespace lockstep
