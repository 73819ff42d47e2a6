package driver

import (
	"context"
	"fmt"
	"math"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// maxNodeID limits a node ID, in bytes, as the API does.
	maxNodeID = 192
	// maxTopology limits the number of segments of a topology.
	maxTopology = 64
)

// Facts are a driver's reports about itself and the node.
type Facts struct {
	NodeID string
	// MaxVolumes limits the number of the driver's volumes on the node; 0 means no limit.
	MaxVolumes int32
	// Topology is the location of the node, as labels for it.
	Topology map[string]string
	Can
}

// Can are a driver's capabilities.
type Can struct {
	// Stage: volumes are staged before they are published.
	Stage bool
	// Group: the driver applies the fsGroup itself.
	Group bool
	// ManyWriters: the driver distinguishes one writer on a node from many.
	ManyWriters bool
	// Expand: the node expands file systems. Stats: the driver reports the usage of volumes.
	Expand, Stats bool
}

// ReadFacts reads the facts from the driver. It returns an error for invalid ones.
func (c *Client) ReadFacts(ctx context.Context) (f Facts, err error) {
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
