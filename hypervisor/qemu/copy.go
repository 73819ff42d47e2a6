package qemu

import (
	"context"
	"fmt"
	"os"

	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// Park stops a VM of this package whose process is to be copied. As with Save, nobody
// may be connected to its guest any more, and Park returns when QEMU knows that.
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

// ProcessName is what the process of a machine of that name bears.
func ProcessName(name string) string { return processName(name) }

// Inherited is a file by the number at which a machine's process has it.
type Inherited struct {
	Number int
	File   *os.File
}

// Inherit makes the files that a copy of a machine's process has in the place of the
// original's: the file of its complaints, and its listening sockets in dir. The caller
// closes them. After an error dir is as it was.
func Inherit(dir string) (files []Inherited, err error) {
	p := &parcel{dir: dir}
	for _, name := range machineSockets {
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
