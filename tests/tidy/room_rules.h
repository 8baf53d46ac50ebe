// Rules about folders: how many rooms one has, which folders use each other, and who may name a
// device. Product code only.
#pragma once

#include <vector>

#include "tests/tidy/layers.h"
#include "tests/tidy/source_tree.h"

namespace switchyard::tidy {

// No two folders include each other, directly or around a circle, whatever their layers. One
// finding for each circle, at an include that closes it.
void CheckFolderCircles(const SourceTree& tree, const Layers& layers,
                        std::vector<Finding>* findings);

// No folder holds more than 25 rooms; a room is a .cc with its .h.
void CheckRooms(const SourceTree& tree, const Layers& layers, std::vector<Finding>* findings);

// Nothing outside worker/device and worker/registry includes a header of worker/device/cpu, and
// no program writes the kind of a device into its source: MakeDevice("cpu").
void CheckDeviceSeam(const SourceTree& tree, const Layers& layers, std::vector<Finding>* findings);

}  // namespace switchyard::tidy
