#include "gpu/launcher/supervise.hpp"

namespace lockstep::gpu {}
