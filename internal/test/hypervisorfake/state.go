package hypervisorfake

import (
	"errors"
	"net"
	"os"

	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// accept serves one connection of the channel at a time.
func (m *vmState) accept(serve func(*Guest, net.Conn), g *Guest) {
	for {
		conn, err := m.l.Accept()
		if err != nil {
			return
		}
		stop := make(chan struct{})
		m.wg.Go(func() {
			select {
			case <-m.done:
			case <-stop:
			}
			conn.Close()
		})
		if serve != nil {
			serve(g, conn)
		} else {
			<-m.done
		}
		close(stop)
	}
}

// reap waits for the process to end.
func (m *vmState) reap() {
	err := m.cmd.Wait()
	m.mu.Lock()
	if m.exit == nil && err != nil {
		m.exit = err
	}
	for slot, disk := range m.disks {
		disk.Close()
		delete(m.disks, slot)
	}
	m.mu.Unlock()
	m.l.Close()
	close(m.done)
	m.wg.Wait()
}

// errOff stands for a guest that shut itself down.
var errOff = errors.New("off")

// end ends the process; the first cause counts.
func (m *vmState) end(cause error) {
	m.mu.Lock()
	if m.exit == nil {
		m.exit = cause
	}
	m.mu.Unlock()
	m.pipe.Close()
	m.cmd.Process.Kill()
}

func (m *vmState) ended() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// PowerOff ends the VM like a guest that shuts itself down.
func (g *Guest) PowerOff() { g.m.end(errOff) }

// Crash ends the VM like a guest with a kernel panic, and writes console to its console.
func (g *Guest) Crash(console string) {
	g.m.mu.Lock()
	if g.m.console != nil {
		_, _ = g.m.console.WriteString(console)
	}
	g.m.mu.Unlock()
	g.m.end(errors.New("the guest's kernel died or rebooted"))
}

// Memory returns the guest's memory, in MiB.
func (g *Guest) Memory() int {
	g.m.mu.Lock()
	defer g.m.mu.Unlock()
	return g.m.memory
}

// Disk returns the disk in a slot, nil for an empty one. The VM owns it.
func (g *Guest) Disk(slot int) *os.File {
	g.m.mu.Lock()
	defer g.m.mu.Unlock()
	return g.m.disks[slot]
}

// Size returns a slot's size, in bytes, as the guest sees it.
func (g *Guest) Size(slot int) int64 {
	g.m.mu.Lock()
	defer g.m.mu.Unlock()
	if size := g.m.sizes[slot]; size != 0 {
		return size
	}
	return hypervisor.SlotSize
}

// Rebind updates the size of a slot that the guest sees, like a driver that binds again.
func (g *Guest) Rebind(slot int) error {
	g.m.mu.Lock()
	defer g.m.mu.Unlock()
	size := int64(hypervisor.SlotSize)
	if disk := g.m.disks[slot]; disk != nil {
		info, err := disk.Stat()
		if err != nil {
			return err
		}
		size = info.Size()
	}
	g.m.setSize(slot, size)
	return nil
}

// tail returns the end of the console.
func (m *vmState) tail() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.console == nil {
		return ""
	}
	info, err := m.console.Stat()
	if err != nil {
		return ""
	}
	buf := make([]byte, min(info.Size(), 2<<10))
	n, _ := m.console.ReadAt(buf, info.Size()-int64(len(buf)))
	return hypervisor.Printable(string(buf[:n]))
}
