package qemu

import (
	"context"
	"fmt"
	"os"

	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// Park stops a VM of this package, before its process is copied. As with Save, all connections to the guest must be
// closed; Park returns when QEMU has noticed.
func Park(ctx context.Context, v hypervisor.VM) error {
	parked, ok := v.(*vm)
	if !ok {
		return fmt.Errorf("park a VM: %w: a %T", hypervisor.ErrInvalid, v)
	}
	if err := parked.awaitHangUp(ctx); err != nil {
		return parked.failed("save", "wait until the channel is disconnected", parked.deathOr(err))
	}
	return parked.Pause(ctx)
}

// ProcessName returns the name of the process of a VM with that name.
func ProcessName(name string) string { return processName(name) }

// Inherited is a file and its descriptor number in a VM's process.
type Inherited struct {
	Number int
	File   *os.File
}

// Inherit creates the files that replace the original's in a copy of a VM's process: the file for stderr, and the
// listening sockets in dir. The caller closes them. After an error dir is unchanged.
func Inherit(dir string) (files []Inherited, err error) {
	p := &parcel{dir: dir}
	for _, name := range vmSockets {
		p.listen(name)
	}
	var stderr *os.File
	if err = p.err; err == nil {
		stderr, err = newStderr()
	}
	if err != nil {
		p.close()
		p.unlink()
		return nil, fmt.Errorf("prepare a VM's files: %w", err)
	}
	files = []Inherited{{2, stderr}}
	for i, f := range p.owned {
		files = append(files, Inherited{firstFD + i, f})
	}
	return files, nil
}
