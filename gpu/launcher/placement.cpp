#include "gpu/launcher/placement.hpp"

namespace lockstep::gpu {}
