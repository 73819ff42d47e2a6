package driver

import (
	"context"
	"fmt"
	"math"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// maxNodeID is how long a node's id may be, in bytes, as the API has it.
	maxNodeID = 192
	// maxTopology is how many segments a topology may have.
	maxTopology = 64
)

// Facts are what a driver tells of itself and of the node.
type Facts struct {
	NodeID string
	// MaxVolumes is how many volumes the node can have; 0 is any number.
	MaxVolumes int32
	// Topology is where the node is: labels that it gets.
	Topology map[string]string
	Can
}

// Can is what a driver can do.
type Can struct {
	// Stage says that volumes are staged before they are published.
	Stage bool
	// Group says that the driver gives volumes to a group itself.
	Group bool
	// ManyWriters says that it tells one writer on a node from many.
	ManyWriters bool
	// Expand says that file systems are made larger on the node, Stats that volumes' use can be asked.
	Expand, Stats bool
}

// Ask asks for the facts. The error says what the driver may not tell.
func (c *Client) Ask(ctx context.Context) (f Facts, err error) {
	info, err := c.NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
	if err != nil {
		return f, err
	}
	if f.NodeID = info.GetNodeId(); f.NodeID == "" || len(f.NodeID) > maxNodeID {
		return f, fmt.Errorf("the driver reports a node ID of %d bytes (must be 1 to 192)", len(f.NodeID))
	}
	f.MaxVolumes = int32(min(max(info.GetMaxVolumesPerNode(), 0), math.MaxInt32))
	f.Topology = info.GetAccessibleTopology().GetSegments()
	if len(f.Topology) > maxTopology {
		return f, fmt.Errorf("the driver reports a topology with %d segments (at most 64)", len(f.Topology))
	}
	for key, value := range f.Topology {
		if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
			return f, fmt.Errorf("the driver's topology %.100q: %.100q must be a valid label", key, value)
		}
	}
	f.Can, err = c.can(ctx)
	return f, err
}

func (c *Client) can(ctx context.Context) (can Can, err error) {
	got, err := c.NodeGetCapabilities(ctx, &csi.NodeGetCapabilitiesRequest{})
	if err != nil {
		return can, err
	}
	for _, one := range got.GetCapabilities() {
		switch one.GetRpc().GetType() {
		case csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME:
			can.Stage = true
		case csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP:
			can.Group = true
		case csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER:
			can.ManyWriters = true
		case csi.NodeServiceCapability_RPC_EXPAND_VOLUME:
			can.Expand = true
		case csi.NodeServiceCapability_RPC_GET_VOLUME_STATS:
			can.Stats = true
		}
	}
	return can, nil
}
