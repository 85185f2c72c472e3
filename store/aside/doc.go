// Package aside keeps one item from stopping the others. Loops work on items of several owners together: slots, runs,
// outcomes, workflows, events, notices. A batch that fails says nothing about which of its items makes it fail, and
// the same batch, tried again, fails again.
//
// [Apart] does work on items together as long as that goes well. A batch that has failed twice is halved, and so are
// its halves, until an item fails alone. Such an item is set aside with its reason ([Aside.Put]): no batch takes it
// any more, it is tried again by itself after a growing pause ([Aside.Due]), and verify, explain, the overview, a
// metric and an alert tell of it. A database that cannot be used, whatever the statement, is no item's fault: see
// [Blames].
//
// A row that cannot even be read makes the selection of a batch fail. [Aside.Select] finds it by halves of the ids,
// sets it aside, and passes over it ([Aside.SetUnreadable]).
//
// A batch is halved in the order of its items, and who calls orders them by tenant: what fails for one reason is mostly
// of one tenant, and so comes in few parts. [Parts] bounds what a batch costs of which many items hang.
//
// The room writes one table, set_aside. It is empty as long as all goes well.
package aside
