// Package hosts tests Bulkhead on hosts as users have them: Debian with systemd, cgroup v2, AppArmor, login sessions and
// KVM. QEMU emulates each host together with AMD's SVM, so KVM works inside. An emulated host is 10 to 20 times slower
// than a real one, so the tests check what happens and not how fast.
//
// make hosts runs all of them. make host-today runs some on one host, each day others.
package hosts
