// Package guard decides which addresses callbacks may go to.
//
// A job's author makes a replica send requests from inside the network that it runs in. So only public addresses are
// called. Others must be allowed: for all tenants by the deployment, or for one tenant by an operator. The guard
// judges the address that is about to be connected to, after the name was resolved. So neither the spelling of a host
// nor what its name resolves to a moment later makes a difference.
//
//	Punctual's own API and database          never, whatever is allowed
//	allowed by the deployment or the tenant  yes; the metadata services of clouds only when named exactly (/32, /128)
//	metadata services                        no
//	private, loopback, link-local, reserved  no
//	everything else                          yes
//
// An IPv4 address within an IPv6 address is judged as the address that it leads to, if that is certain. It is certain
// for IPv4-mapped addresses, and for the well-known NAT64 prefix 64:ff9b::/96, where a gateway sends to the embedded
// IPv4 address. In a network that has only IPv6, every IPv4 target has such an address. To refuse all of them would
// refuse the public ones, and to allow the prefix would open the private ones.
//
// All other forms (IPv4-compatible, 6to4, Teredo, NAT64 under a prefix of the network's own) are refused, whatever
// they embed: none of them is public.
package guard
