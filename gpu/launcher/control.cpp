#include "gpu/launcher/control.hpp"

namespace lockstep::gpu {}
