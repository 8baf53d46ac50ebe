#include "worker/transport/descriptor.h"

#include <unistd.h>

namespace switchyard {

void DescriptorTraits::Close(Handle descriptor) { ::close(descriptor); }

}  // namespace switchyard
