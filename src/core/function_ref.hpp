#pragma once

#include <type_traits>
#include <utility>

namespace lockstep {

/// A reference to something callable, such as a lambda, which is passed without a copy.
/// The reference must not outlive the callable.
template <typename Signature>
class FunctionRef;

template <typename Result, typename... Arguments>
class FunctionRef<Result(Arguments...)> {
  public:
    template <typename Callable>
    requires(!std::is_same_v<std::remove_cvref_t<Callable>, FunctionRef>)
        // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): see the line above.
        FunctionRef(Callable&& callable)
        : object_(const_cast<void*>(static_cast<const void*>(&callable))),
          call_([](void* object, Arguments... arguments) -> Result {
              return (*static_cast<std::remove_reference_t<Callable>*>(object))(
                  std::forward<Arguments>(arguments)...);
          }) {}

    Result operator()(Arguments... arguments) const {
        return call_(object_, std::forward<Arguments>(arguments)...);
    }

  private:
    void* object_;
    Result (*call_)(void*, Arguments...);
};

}  // namespace lockstep
