package oci

import (
	"fmt"

	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/oci/convert"
)

// refuse returns an error for a part of a plan that the door does not do yet.
func refuse(p *convert.Plan) error {
	for _, one := range []struct {
		field string
		has   bool
	}{
		{"linux.devices: a block device of the host", len(p.Disks) > 0},
		{"linux.netDevices", len(p.NetDevices) > 0},
		{"vm: a kernel, initrd or image of its own", p.Boot != convert.Boot{}},
	} {
		if one.has {
			return fmt.Errorf("%w: %s", oci.ErrNotSupported, one.field)
		}
	}
	for _, t := range p.Trees {
		if t.IDMap != nil {
			return fmt.Errorf("%w: mount at %.200s: a mapping of owners", oci.ErrNotSupported, t.Destination)
		}
	}
	return nil
}
