package process

import (
	"fmt"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/shim/bootstrap"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// stored is the part of the shim's configuration that the next shim needs and the sandbox does not store.
type stored struct {
	Version int                 `json:"version"`
	VM      hypervisor.VMConfig `json:"machine"`
	Clone   bool                `json:"clone"`
}

// prepare stores the VM's configuration, or reads it on adoption.
func (s *shim) prepare() error {
	path := s.path(layout.VMConfig)
	if s.m.Adopt {
		var st stored
		if err := atomicfile.ReadJSON(path, &st); err != nil {
			return fmt.Errorf("adopt the sandbox: %w", err)
		}
		// The pod's own user can change the file. The engine's configuration takes precedence, because the shim's
		// confinement follows from it.
		if s.m.VM.Kernel == "" {
			s.m.VM = st.VM
		}
		s.m.Clone = st.Clone
		return nil
	}
	s.m.Clone = s.files[bootstrap.Memory] != nil || s.m.Copy != nil
	st := stored{Version: bootstrap.Version, VM: s.m.VM, Clone: s.m.Clone}
	if err := atomicfile.WriteJSON(path, st, 0o600, atomicfile.Volatile); err != nil {
		return fmt.Errorf("store the VM's configuration: %w", err)
	}
	return nil
}
