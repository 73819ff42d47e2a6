package nodes

import (
	"golang.org/x/sys/unix"
)

const (
	// inoBits is the size of the host's inode numbers that are passed on unchanged.
	inoBits = 48
	// maxDevices is the most file systems that the upper bits of inode numbers distinguish.
	maxDevices = 1 << 14
	// hashed marks inode numbers that do not fit: they are a hash of file system and number.
	hashed = 1 << 63
	// RootIno is the inode number of the synthetic root.
	RootIno = 1<<62 | 1
)

// Ino returns the inode number that the guest sees. To the guest all trees are one file system. Numbers of the host's
// first file system are unchanged; those of others have its index in the upper bits.
func (t *Table) Ino(st *unix.Statx_t) uint64 {
	return t.InoOf(unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino)
}

// InoOf is like Ino for a device and a number.
func (t *Table) InoOf(dev, ino uint64) uint64 {
	t.mu.Lock()
	i, ok := t.devices[dev]
	if !ok && len(t.devices) < maxDevices {
		i, ok = uint64(len(t.devices)), true
		t.devices[dev] = i
	}
	t.mu.Unlock()
	if ok && ino < 1<<inoBits {
		return i<<inoBits | ino
	}
	return hashed | mix(mix(dev)^ino)>>1
}

// mix is the finalizer of SplitMix64, which is a bijection.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
